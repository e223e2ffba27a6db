"""What keeps a store on objects fast, small and sound.

`merge` joins the files of a type after commits. `maintenance` does so on request and removes what nobody can reach.
`advisory` writes what is beside the truth, `checks` reads everything to find damage, `links` compares the rows that
runs say they replace with their keys, and `phantoms` names rows that no commit declared. `branch_garbage` finds deleted
branches that nothing leads to, and `replacements` has manifests name the files that an erasure wrote.
"""
