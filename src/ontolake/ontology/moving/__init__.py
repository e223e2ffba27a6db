"""Data on its way into, out of and between typed stores: `imports` and `import_lines`, `exports`, `conversion` to
another engine or place, which `branched` does for stores with branches, and `json_values`, the form that values have in
files.
"""
