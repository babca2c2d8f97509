"""Functions that the scenario `functions-of-a-service.yaml` registers: in a rolefile, given their arguments alone."""

GRADES = {"ann": 7, "bob": 3}


def grade(player):
    """The grade of a player; there is none of a stranger."""
    return GRADES[player]


def may_coach(grade, pupils):
    """May a player of this grade have so many pupils?"""
    return pupils <= grade // 2


def badge(grade):
    """The letters on the badge of a player."""
    return set("ab" if grade > 5 else "b")


def may_treat(known, nurse):
    """Is a nurse on shift? Asked again whenever a group or a relation changes."""
    return nurse in known.members("nurses") and (nurse,) in known.rows("OnShift")


may_treat.monitored = True


def userid(text):
    """A user name as it is kept: small letters, and letters alone."""
    if not text.isalpha():
        raise ValueError("a user name has letters only")
    return text.lower()
