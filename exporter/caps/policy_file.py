"""The cluster's policy file, which the exporter and the enforcer both read.

YAML: `defaults` for every namespace and `namespaces` with what differs in some. Guarantees that a file which is
accepted holds no contradiction, and that every complaint names the file, the line and the key. The format is in
docs/policy.md.
"""

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

from exporter.caps.memory import exceeds, text_of
from exporter.caps.policy import Policy, Rule
from exporter.caps.quantities import Fault, count, quantity, ratio
from exporter.caps.requests import Amount, Reaction, Share
from exporter.yaml_sections import ConfigFileError, Section, read_root

__all__ = ["ConfigFileError", "read_policy"]

_ROOT_KEYS = frozenset({"defaults", "namespaces"})
_RULE_KEYS = frozenset({"memory", "active_thread_percentage", "on_overrun"})
_BOUND_KEYS = frozenset({"default", "ceiling"})
_REACTION_KEYS = frozenset({"default", "harshest"})
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_NOTHING = "none"  # lifts what `defaults` set


def read_policy(origin: Path) -> Policy:
    """Read and check the file.

    Raises:
        ConfigFileError: one line with the file, the line number, the key and what to change.
    """
    root = read_root(origin, _ROOT_KEYS)
    defaults = _rule(root.section("defaults", _RULE_KEYS), Rule())
    listed = root.section("namespaces", None)
    namespaces = {}
    for name in listed:
        if not _NAMESPACE.fullmatch(name):
            raise listed.fail(name, "is no name of a namespace")
        namespaces[name] = _rule(listed.section(name, _RULE_KEYS), defaults)
    return Policy(defaults, MappingProxyType(namespaces))


def _rule(section: Section, base: Rule) -> Rule:
    """The rule of a section; what it does not set is as in `base`."""
    memory = section.section("memory", _BOUND_KEYS)
    threads = section.section("active_thread_percentage", _BOUND_KEYS)
    reaction = section.section("on_overrun", _REACTION_KEYS)
    rule = replace(
        base,
        memory_default=_amount(memory, "default", base.memory_default),
        memory_ceiling=_amount(memory, "ceiling", base.memory_ceiling),
        threads_default=_percentage(threads, "default", base.threads_default),
        threads_ceiling=_percentage(threads, "ceiling", base.threads_ceiling),
        reaction=_reaction(reaction, "default", base.reaction),
        harshest=_reaction(reaction, "harshest", base.harshest),
    )
    _check(rule, memory=memory, threads=threads, reaction=reaction)
    return rule


def _check(rule: Rule, *, memory: Section, threads: Section, reaction: Section) -> None:
    """Raise where a default is above the ceiling that goes with it."""
    memory_default, memory_ceiling = rule.memory_default, rule.memory_ceiling
    if memory_default is not None and memory_ceiling is not None and exceeds(memory_default, memory_ceiling):
        raise _above(memory, text_of(memory_default), f"ceiling {text_of(memory_ceiling)}")
    if (rule.threads_default or 0) > (rule.threads_ceiling or 100):
        raise _above(threads, f"{rule.threads_default}", f"ceiling {rule.threads_ceiling}")
    if rule.reaction.severity > rule.harshest.severity:
        raise _above(reaction, rule.reaction, f"harshest {rule.harshest}")


def _above(section: Section, default: str, bound: str) -> ConfigFileError:
    key = next((key for key in ("default", "ceiling", "harshest") if key in section), "default")
    return section.fail(key, f"the default {default} is above the {bound}; lower it or raise the other")


def _amount(section: Section, key: str, base: Amount | None) -> Amount | None:
    """Memory per device: a quantity with a unit, or a decimal above 0 and at most 1, a share of the device."""
    text = _text(section, key)
    if text is None or text == _NOTHING:
        return base if text is None else None
    share = ratio(text, one=True)
    if isinstance(share, Fraction):
        return Share(share)
    size = quantity(text, unit_required=True)
    if isinstance(size, Fault):
        raise section.fail(key, f"{size.problem}, a share of the device such as 0.25, or {_NOTHING}")
    return size


def _percentage(section: Section, key: str, base: int | None) -> int | None:
    text = _text(section, key)
    if text is None or text == _NOTHING:
        return base if text is None else None
    number = count(text, most=100)
    if isinstance(number, Fault):
        raise section.fail(key, f"{number.problem}, or {_NOTHING}")
    return number


def _reaction(section: Section, key: str, base: Reaction) -> Reaction:
    text = _text(section, key)
    if text is None:
        return base
    if text not in list(Reaction):
        raise section.fail(key, f"{text!r} is none of {', '.join(Reaction)}")
    return Reaction(text)


def _text(section: Section, key: str) -> str | None:
    """The value at a key; None where the key is not there."""
    if key not in section:
        return None
    text = section.text(key)
    if not text:
        raise section.fail(key, "has no value; give it one, or remove it to keep what defaults say")
    return text
