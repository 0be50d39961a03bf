"""The online loops, each once, over four ports; the command line, the server and the evaluation run this code."""
