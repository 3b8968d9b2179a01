"""Synonyms of health and travel insurance: members' words and those of the booklets."""

import re
from collections.abc import Collection

# The words of one line mean the same.
SYNONYMS = """
emergency room = emergency department = er
doctor = physician
kid = kids = child = children
glasses = eyewear = lenses
contacts = contact lenses
shot = shots = vaccine = immunization
flu = influenza
ivf = in vitro fertilization
exam = examination
phone = telephone
job = employment
smoking = smoker = tobacco
birth control = contraception = contraceptive
blood test = blood tests = lab test = laboratory test
medicine = medication = drug
drugstore = pharmacy
checkup = check-up = preventive visit
telehealth = telemedicine = virtual visit
mri = ct scan = advanced imaging
pregnancy = maternity
baby = newborn
permission = approval = prior authorization
turned down = rejected = denied
complaint = grievance
money back = refund = reimbursement
rehab = rehabilitation
wheelchair = durable medical equipment
overnight stay = inpatient stay
coinsurance = cost share
copay = copayment
premium = monthly payment
laid off = termination of employment
abroad = overseas = outside the country
cancer treatment = chemotherapy
counseling = psychotherapy = mental health
addiction = substance use disorder
dentures = false teeth
retainer = braces = orthodontics
cavity = filling
tooth removal = extraction
luggage = baggage
bike = bicycle
teeth = tooth
sick pay = disability benefit
therapist = counselor
home nurse = home health
nursing home = skilled nursing facility
"""
_GROUPS = [tuple(map(str.strip, line.split("="))) for line in SYNONYMS.strip().splitlines()]
_GROUP_OF = {term: group for group in _GROUPS for term in group}
_TERM = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(_GROUP_OF, key=len, reverse=True)))})s?\b", re.IGNORECASE)


def _base(term: str) -> str:
    """Return the term of the table that is meant: "smokers" is "smoker"."""
    return term if term in _GROUP_OF else term.removesuffix("s")


def find_synonyms(text: str) -> dict[str, list[str]]:
    """Return the terms of the text that have synonyms, in small letters, each with those."""
    terms = dict.fromkeys(match[0].lower() for match in _TERM.finditer(text))
    return {term: [other for other in _GROUP_OF[_base(term)] if other != _base(term)] for term in terms}


def replace_terms(text: str, terms: Collection[str]) -> str:
    """Return the text with all synonyms in the place of each of these terms."""
    return _TERM.sub(
        lambda match: ", ".join(_GROUP_OF[_base(match[0].lower())]) if match[0].lower() in terms else match[0], text
    )
