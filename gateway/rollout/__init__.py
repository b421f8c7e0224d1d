"""The rollout: who is live, what is counted for whom, and when the evidence is enough to fall back or go on.

In: requests, outcomes, the time. Out: arms, findings, the next state. Bounded; the same in every process. `assignment`
puts conversations into arms, `conversation`, `call_ids` and `outcomes` tell how they fared, `counters` and
`evidence` add that up, `judge` and `gates` decide, `stages` and `transitions` are what follows.

Rights: pure.
"""
