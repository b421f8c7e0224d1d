"""Tool surfaces: a model is shown the tool it was trained on, and its calls become calls of the client's own tools.

In: the client's tools and past. Out: the model's, and the way back. What cannot be said exactly is refused. `mappings`
is the table, `text_editor` and `apply_patch` the model's tools, `client_tools` the clients', `operations` what both
mean; `mapped_history` goes up, `answers` comes down.

Rights: pure.
"""
