"""A machine of its own for tests: Debian's kernel in a virtual machine without hardware support.

Its files are this machine's own, read-only below a memory file system; its kernel loads and unloads
real modules. Tests call functions in it: `await guest.call(modules.loaded, Tree("/"))`.
"""
