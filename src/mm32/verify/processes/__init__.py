"""The processes that run scripts, as the tool handles them, and what they may see and do.

process, channel         a script's process: start it, ask it, end it; its answers are checked before anything uses them
launch, forkserver       workers forked from a process that has imported torch
supervisor, sandbox      the process above a worker; the worker's namespaces, user, files and limits
folder, printed          its folder, and what it prints
schedule, untraceable    how its threads are scheduled, put back where somebody changed it; nobody can trace the tool
descendants              the processes that one has started, directly or through others
guard                    whether somebody meddled with a verification
device_lock, capacity    measuring alone; how many verifications run at once
"""
