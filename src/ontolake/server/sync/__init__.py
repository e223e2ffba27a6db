"""Documents over WebSocket: sessions that resume, transactions, and watch sets that follow a space.

`endpoint` is where sockets come in and `connections` one of them, `messages` is what both sides say, `sessions` who may
go on with a session, `feeds` follows each space once for all sockets, and `transport` drops connections whose client
does not read. The protocol is described in `docs/sync.md`.
"""
