"""The queue of events of a store on objects.

`events` is what handlers and sessions ask, `queue` reads the objects and swaps `events/queue.json`, in the words of
`layout`. `view` is a queue at one moment, in memory; `retention` says what leaves it and what goes into pages. `checks`
finds damage and what can go, `copies` brings a whole queue to another engine.
"""
