"""azq's protocol in one process, from a seed: the shipped code over a simulated clock, scheduler, broker, delivery and disk.

scripts, keyspace, streams, broker, client   a Redis server in process, with the Lua of the ledger, behind redis-py
world, network, disk                         clock and scheduler; what lies between processes; what a power cut leaves
actors, faults                               the processes; what goes wrong
books, simulation                            what truly happened, and the verdict; one seed from start to end
"""
