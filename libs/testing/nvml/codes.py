"""The numbers of NVML: what calls return, and what values mean."""

from enum import IntEnum


class Return(IntEnum):
    """What a call returns."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    INSUFFICIENT_POWER = 8
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    IRQ_ISSUE = 11
    FUNCTION_NOT_FOUND = 13
    CORRUPTED_INFOROM = 14
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    INSUFFICIENT_RESOURCES = 23
    ARGUMENT_VERSION_MISMATCH = 25
    UNKNOWN = 999


class ValueType(IntEnum):
    """The member of a field's value that is set."""

    DOUBLE = 0
    UNSIGNED_INT = 1
    UNSIGNED_LONG_LONG = 3


class RecoveryAction(IntEnum):
    """What the driver says must be done about a GPU: field 230."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4


class FabricState(IntEnum):
    """How far a GPU has joined its NVLink fabric."""

    NOT_SUPPORTED = 0
    NOT_STARTED = 1
    IN_PROGRESS = 2
    COMPLETED = 3


class EventType(IntEnum):
    """Bits that name kinds of events."""

    SINGLE_BIT_ECC = 1
    DOUBLE_BIT_ECC = 2
    PSTATE = 4
    XID = 8
    CLOCK = 16


ENUMS: tuple[type[IntEnum], ...] = (Return, ValueType, RecoveryAction, FabricState, EventType)
