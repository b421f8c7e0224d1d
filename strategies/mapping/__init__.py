"""Tool surfaces: a model is shown the tool it was trained on, and its calls become calls of the client's own tools.

In: the client's tools and past. Out: the model's, and the way back. What cannot be said exactly is refused.

Rights: pure.
"""
