"""The names of processor features: as the kernel lists them, and as NFD's labels have them."""

from collections.abc import Mapping
from typing import Final

from libs.contracts.facts import Cpu

ARM: Final = "aarch64"
X86: Final = "x86_64"

VENDORS: Final[Mapping[str, str]] = {
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "HygonGenuine": "Hygon",
    "0x41": "ARM",
    "0x42": "Broadcom",
    "0x43": "Cavium",
    "0x46": "Fujitsu",
    "0x4e": "NVIDIA",
    "0x50": "AMCC",
    "0x51": "Qualcomm",
    "0x56": "Marvell",
    "0xc0": "Ampere",
}
"""By the vendor's name, or the implementer's number, in /proc/cpuinfo."""

_ALIKE: Final = (
    "adx",
    "amx_bf16",
    "amx_fp16",
    "amx_int8",
    "amx_tile",
    "avx",
    "avx2",
    "avx512_bf16",
    "avx512_bitalg",
    "avx512bw",
    "avx512cd",
    "avx512dq",
    "avx512er",
    "avx512f",
    "avx512_fp16",
    "avx512ifma",
    "avx512pf",
    "avx512vbmi",
    "avx512_vbmi2",
    "avx512vl",
    "avx512_vnni",
    "avx512_vp2intersect",
    "avx512_vpopcntdq",
    "avx_vnni",
    "cldemote",
    "clzero",
    "cppc",
    "enqcmd",
    "fma4",
    "fsrm",
    "fxsr",
    "gfni",
    "hle",
    "hypervisor",
    "ibpb",
    "ibrs",
    "ibs",
    "movbe",
    "movdir64b",
    "movdiri",
    "mpx",
    "pconfig",
    "rdpru",
    "rtm",
    "serialize",
    "sev",
    "sme",
    "sse4a",
    "stibp",
    "succor",
    "svm",
    "syscall",
    "tbm",
    "tme",
    "tsxldtrk",
    "vaes",
    "vmx",
    "vpclmulqdq",
    "waitpkg",
    "wbnoinvd",
    "xgetbv1",
    "xop",
    "xsavec",
    "xsaveopt",
    "xsaves",
)
"""Features whose names differ in case and underscores alone."""

_X86: Final[Mapping[str, tuple[str, ...]]] = {
    "aes": ("AESNI",),
    "arch_capabilities": ("IA32_ARCH_CAP",),
    "core_capabilities": ("IA32_CORE_CAP",),
    "cpb": ("CPBOOST",),
    "cx8": ("CMPXCHG8",),
    "fma": ("FMA3",),
    "fpu": ("X87",),
    "fxsr_opt": ("FXSROPT",),
    "ibt": ("CETIBT",),
    "lahf_lm": ("LAHF",),
    "lbrv": ("LBRVIRT",),
    "nrip_save": ("NRIPS",),
    "overflow_recov": ("MCAOVERFLOW",),
    "sep": ("SYSEE",),
    "sha_ni": ("SHA",),
    "ssbd": ("SPEC_CTRL_SSBD",),
    "topoext": ("TOPEXT",),
    "user_shstk": ("CETSS",),
    "xsave": ("XSAVE", "OSXSAVE"),
    **{name: (name.replace("_", "").upper(),) for name in _ALIKE},
    **{name: (name.upper(),) for name in ("flush_l1d", "md_clear", "sev_es", "sev_snp")},
}
"""By flag in /proc/cpuinfo, without the features that NFD leaves out by default."""


_ARM: Final = frozenset(
    (
        *("fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "atomics", "fphp"),
        *("asimdhp", "cpuid", "asimdrdm", "jscvt", "fcma", "lrcpc", "dcpop", "sha3", "sm3", "sm4"),
        *("asimddp", "sha512", "sve", "asimdfhm", "dit", "uscat", "ilrcpc", "flagm", "ssbs", "sb"),
        *("paca", "pacg", "dcpodp", "sve2", "sveaes", "svepmull", "svebitperm", "svesha3"),
        *("svesm4", "flagm2", "frint", "svei8mm", "svef32mm", "svef64mm", "svebf16", "i8mm"),
        *("bf16", "dgh", "rng", "bti", "mte", "ecv", "afp", "rpres", "mte3", "sme", "smei16i64"),
        *("smef64f64", "smei8i32", "smef16f32", "smeb16f32", "smef32f32", "smefa64", "wfxt"),
        *("ebf16", "sveebf16"),
    )
)
"""Features of 64-bit Arm processors, whose names differ in case alone."""


def names(cpu: Cpu) -> tuple[str, ...]:
    """Return the features of a processor with these flags."""
    if cpu.architecture == ARM:
        return tuple(sorted(flag.upper() for flag in _ARM & set(cpu.flags)))
    return tuple(sorted(name for flag in set(cpu.flags) for name in _X86.get(flag, ())))


def is_bare_metal(cpu: Cpu) -> bool:
    """Return whether an x86 processor says that it runs under no hypervisor."""
    return cpu.architecture == X86 and bool(cpu.flags) and "hypervisor" not in cpu.flags
