"""What every request carries: its identity, its deadline, its headers, the configuration in force for it.

In: a request as the server has it. Out: its state, which all later steps read. Knows neither the model server's side
nor the pages. `shared` is what all requests of a process have, `state` what one has, `findings` what is found out about
one by those who answer it, `servers` the model servers that it may be sent to, `deadline` its waits.

Rights: edge: the loop, and the request under way.
"""
