"""Who may ask, which server is asked, how often, and how many may be asked at once.

In: what happened, and the time. Out: decisions. Time is an argument. `door` and `admission` let requests in, `routing`,
`retry` and `breaker` send them, `lesson_rules` and `rescues` say what is learned of a model, `recent_answers` which
answer a rating is about, `samples` whose text is kept.

Rights: pure.
"""
