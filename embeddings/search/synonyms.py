"""Synonyms of insurance and benefits: members' words and those of the documents."""

import re
from collections.abc import Iterable, Mapping
from itertools import chain

# The words of one line mean the same; those before > are kinds of what follows it, or part of it.
SYNONYMS = """
emergency room = emergency department = er
doctor = physician
kid = kids = child = children
glasses = eyeglasses = eyewear = lenses
contacts = contact lenses
shot = shots = vaccine = vaccination = immunization
flu shot = influenza vaccine > vaccine, immunization
flu = influenza
ivf = in vitro fertilization
exam = examination
phone = telephone
job = employment
smoking = smoke = smoker = tobacco
birth control = contraception = contraceptive
blood test = blood tests = blood work = lab test = lab work = laboratory test
medicine = medication = drug
drugstore = pharmacy
checkup = check-up = preventive visit
telehealth = telemedicine = virtual visit
mri = mris = cat scan = ct scan = advanced imaging
ultrasound > imaging
pregnancy = pregnant = maternity
giving birth = birth = childbirth = delivery
c-section = cesarean
baby = newborn
permission = approval = prior authorization
turned down = rejected = denied
complaint = grievance
money back = refund = reimbursement
rehab = rehabilitation
wheelchair, crutches, walker, cpap > durable medical equipment
overnight stay = inpatient stay
hospital stay = inpatient
coinsurance = cost share
copay = copayment
premium = monthly payment = monthly cost > cost
laid off = termination of employment
abroad = overseas = outside the country
cancer treatment = chemotherapy
counseling = psychotherapy = mental health
depression, anxiety, psychologist > mental health
shrink = psychiatrist
addiction = alcoholism = detox = substance use disorder
dentures = false teeth
retainer = braces = orthodontics
cavity = filling
tooth removal = tooth pulled = pulling a tooth = pull a tooth = extraction
teeth cleaning = prophylaxis
gum disease > periodontal
cap > crown
grind my teeth = teeth grinding = bruxism = nightguard = night guard
luggage = suitcase = baggage
bike = bicycle
teeth = tooth
sick pay = disability benefit
therapist = counselor
home nurse = home health
nursing home = skilled nursing facility
surgery = operation
same-day surgery = outpatient surgery
plastic surgery = cosmetic surgery
nose job, facelift, tummy tuck > cosmetic surgery
x-ray = xray = radiograph
physio = physiotherapy = physical therapy
broken bone = fracture
heart attack = myocardial infarction
high blood pressure = hypertension
eye doctor = optometrist
foot doctor = podiatrist
skin doctor = dermatologist
dermatologist, cardiologist, urologist, neurologist, gynecologist, orthopedist, allergist, podiatrist > specialist
husband, wife = spouse
son, daughter > child
die = death = dies
sign up = enroll
boss = employer
lawyer = attorney = legal
paycheck = salary = wages
payday = pay date
vacation = paid time off = pto
time off = leave
waiting period = elimination period
excess = deductible
stolen = theft = burglary
break-in, burglar, robbed > theft
burst pipe = pipe bursts = pipe burst = water leak = escape of water
landslide > subsidence
jewelry = jewellery = jewels
ring, necklace, watch > jewellery, valuables
laptop, tablet > computer, valuables
camera > valuables
hotel > accommodation
car = vehicle = motor
crash = wreck = accident
windshield = windscreen
loaner car = loan car = replacement car = courtesy car
gas = petrol = fuel
rental = rented = hire = hired
stereo = radio = audio equipment
tow = breakdown = recovery
cash > money
missed my flight = missed the flight > missed departure
skiing, snowboarding, snowboard > winter sports
skis = ski equipment
scuba > diving
hearing aid
acupuncture
chiropractor = chiropractic
speech therapy
occupational therapy
dialysis
transplant
ambulance
hospice
dental = dentist
whitening = bleaching
implant
root canal
sealant
fluoride
sedation = anesthesia
tmj = jaw joint
laser eye surgery, lasik > laser
cataract
sunglasses
gym
botox
wig
genetic test
weight loss surgery = bariatric surgery
life insurance
401k = retirement
sick day = sick leave
identity theft
boiler
quarantine
golf
marijuana = cannabis
"""
_GROUP_OF: dict[str, tuple[str, ...]] = {}  # each term with its synonyms, itself the first
for _line in SYNONYMS.strip().splitlines():
    _terms, *_wider = ([each.strip() for each in re.split("[=,]", part)] for part in _line.split(">"))
    for _term in _terms:
        _same = [other for other in _terms if other != _term] if not _wider or "=" in _line else []
        _GROUP_OF[_term] = tuple(dict.fromkeys((*_GROUP_OF.get(_term, (_term,)), *_same, *chain(*_wider))))
_TERM = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(_GROUP_OF, key=len, reverse=True)))})s?\b", re.IGNORECASE)


def _base(term: str) -> str:
    """Return the term of the table that is meant: "smokers" is "smoker"."""
    return term if term in _GROUP_OF else term.removesuffix("s")


def find_synonyms(text: str) -> dict[str, list[str]]:
    """Return the terms of the text that have synonyms, in small letters, each with those."""
    terms = dict.fromkeys(match[0].lower() for match in _TERM.finditer(text))
    return {term: [other for other in _GROUP_OF[_base(term)] if other != term] for term in terms}


def replace_terms(text: str, others: Mapping[str, Iterable[str]]) -> str:
    """Return the text with those ``others`` in the place of each of these terms."""
    return _TERM.sub(lambda match: ", ".join(others.get(match[0].lower(), (match[0],))), text)
