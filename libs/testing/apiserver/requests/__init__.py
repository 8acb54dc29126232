"""A request as it comes in and a reply as it goes out: the path, the query and the body, read and
judged.

Must not know what is stored, nor how a request is carried out.
"""
