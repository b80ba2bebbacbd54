"""Where evaluations run: in this process, in worker processes, on an executor or through a map."""
