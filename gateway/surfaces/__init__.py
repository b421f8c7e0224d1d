"""The wires that clients speak: each turns its requests into OpenAI chat, and the chat answer into its own wire.

In: a client's request; the chat answer's bytes, streamed or whole. Out: a chat request; the client's bytes. A surface
is the client's side of what a kind is on the model server's: all that stands between the two sees chat alone. `port`
says what a surface is, `chat` is the one that changes nothing, and each other one is a room with a surface in it.

Rights: pure.
"""
