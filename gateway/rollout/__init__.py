"""The rollout: who is live, what is counted for whom, and when the evidence is enough to fall back or go on.

In: requests, outcomes, the time. Out: arms, findings, the next state. Bounded; the same in every process.

Rights: pure.
"""
