"""What keeps a space fast, small and sound.

`snapshots` takes full documents now and then and clears old ones away, `erasure` removes a document for good, and
`verification` reads everything once.
"""
