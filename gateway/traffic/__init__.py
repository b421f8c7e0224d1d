"""Who may ask, which server is asked, how often, and how many may be asked at once.

In: what happened, and the time. Out: decisions. Time is an argument. `door` and `admission` let requests in, `routing`,
`retry` and `breaker` send them, `lesson_rules` and `recent_answers` say what is kept of a model and of an answer,
`samples` whose text is.

Rights: pure.
"""
