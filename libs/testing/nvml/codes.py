"""The numbers of NVML, as pynvml has them: what calls return, and what values mean."""

from enum import IntEnum

from libs.host.gpus.reading import nvml


class Return(IntEnum):
    """What a call returns."""

    SUCCESS = nvml.NVML_SUCCESS
    UNINITIALIZED = nvml.NVML_ERROR_UNINITIALIZED
    INVALID_ARGUMENT = nvml.NVML_ERROR_INVALID_ARGUMENT
    NOT_SUPPORTED = nvml.NVML_ERROR_NOT_SUPPORTED
    NO_PERMISSION = nvml.NVML_ERROR_NO_PERMISSION
    NOT_FOUND = nvml.NVML_ERROR_NOT_FOUND
    INSUFFICIENT_SIZE = nvml.NVML_ERROR_INSUFFICIENT_SIZE
    INSUFFICIENT_POWER = nvml.NVML_ERROR_INSUFFICIENT_POWER
    DRIVER_NOT_LOADED = nvml.NVML_ERROR_DRIVER_NOT_LOADED
    TIMEOUT = nvml.NVML_ERROR_TIMEOUT
    IRQ_ISSUE = nvml.NVML_ERROR_IRQ_ISSUE
    FUNCTION_NOT_FOUND = nvml.NVML_ERROR_FUNCTION_NOT_FOUND
    CORRUPTED_INFOROM = nvml.NVML_ERROR_CORRUPTED_INFOROM
    GPU_IS_LOST = nvml.NVML_ERROR_GPU_IS_LOST
    RESET_REQUIRED = nvml.NVML_ERROR_RESET_REQUIRED
    OPERATING_SYSTEM = nvml.NVML_ERROR_OPERATING_SYSTEM
    LIB_RM_VERSION_MISMATCH = nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    IN_USE = nvml.NVML_ERROR_IN_USE
    MEMORY = nvml.NVML_ERROR_MEMORY
    INSUFFICIENT_RESOURCES = nvml.NVML_ERROR_INSUFFICIENT_RESOURCES
    ARGUMENT_VERSION_MISMATCH = nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    UNKNOWN = nvml.NVML_ERROR_UNKNOWN


class ValueType(IntEnum):
    """The member of a field's value that is set."""

    DOUBLE = nvml.NVML_VALUE_TYPE_DOUBLE
    UNSIGNED_INT = nvml.NVML_VALUE_TYPE_UNSIGNED_INT
    UNSIGNED_LONG_LONG = nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG


class RecoveryAction(IntEnum):
    """What the driver says must be done about a GPU: field 230."""

    NONE = nvml.NVML_GPU_RECOVERY_ACTION_NONE
    GPU_RESET = nvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET
    NODE_REBOOT = nvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT
    DRAIN_P2P = nvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P
    DRAIN_AND_RESET = nvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET


class FabricState(IntEnum):
    """How far a GPU has joined its NVLink fabric."""

    NOT_SUPPORTED = nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
    NOT_STARTED = nvml.NVML_GPU_FABRIC_STATE_NOT_STARTED
    IN_PROGRESS = nvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS
    COMPLETED = nvml.NVML_GPU_FABRIC_STATE_COMPLETED


class EventType(IntEnum):
    """Bits that name kinds of events."""

    SINGLE_BIT_ECC = nvml.nvmlEventTypeSingleBitEccError
    DOUBLE_BIT_ECC = nvml.nvmlEventTypeDoubleBitEccError
    PSTATE = nvml.nvmlEventTypePState
    XID = nvml.nvmlEventTypeXidCriticalError
    CLOCK = nvml.nvmlEventTypeClock


ENUMS: tuple[type[IntEnum], ...] = (Return, ValueType, RecoveryAction, FabricState, EventType)
