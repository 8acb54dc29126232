"""What people and their tools see of a server: discovery, the forms of an answer, tables, and as
much of OpenAPI as kubectl asks for.

Pure. Must not know what is stored, nor how a request is carried out.
"""
