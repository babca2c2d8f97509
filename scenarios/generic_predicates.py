"""Predicates that the scenario `generic-predicates.yaml` registers. Each sees the event, its size and its arguments."""
# ruff: noqa: ARG001 - every predicate takes the event and its size, whether it looks at them or not


def small(event, size, limit):
    """Is the event no longer than so many bytes?"""
    return size <= limit


def checked(event, size):
    """Do the digits of the card add up (Luhn)?"""
    digits = [int(c) for c in reversed(event["card"])]
    doubled = [d if n % 2 == 0 else sum(divmod(2 * d, 10)) for n, d in enumerate(digits)]
    return sum(doubled) % 10 == 0


def near(event, size, amount, other):
    """Are two amounts within a tenth of each other? Divides by zero, and by null, which is no answer."""
    return abs(amount - other) / abs(amount) <= 0.1


def shrug(event, size):
    """Answers with something that is neither yes nor no."""
    return 1 if event.type == "shop.Payment" else None


def from_till(event, size, number):
    """Is the publisher the till of this number?"""
    return event.publisher == f"till-{number}"
