"""The structured calls of one choice, held to what was declared.

In: the calls as they come. Out: the class of each, what it certainly means where it does not fit, or what is to be
asked again. `review` decides, for a stream and for a whole answer alike; `holding` says what of a stream may go out.

Rights: pure.
"""
