"""Error codes of the import from the old system, for operators: reports and the command."""

from django.utils.translation import gettext_lazy as _

from accounts.errors import staff_error

CORRECT_MAPPING = _("Correct the mapping file, or write it again with `manage.py legacy inspect`.")
REPAIR_AND_REPEAT = _("Repair it in the old system and import again: what was refused is looked at again.")
REINGEST = _("Import with `--mode reingest`: the file is processed again.")

LEGACY_NOT_CONFIGURED = staff_error(
    "LEGACY_NOT_CONFIGURED",
    _("The old system is not configured, or cannot be reached."),
    _("Set LEGACY_DATABASE_URL and LEGACY_BUCKET."),
)
LEGACY_MAPPING_INVALID = staff_error(
    "LEGACY_MAPPING_INVALID", _("The mapping file does not fit the old system."), CORRECT_MAPPING
)
LEGACY_NOT_CONFIRMED = staff_error(
    "LEGACY_NOT_CONFIRMED",
    _("The mapping is not confirmed, or no backup is named."),
    _("Check the mapping file, write the name of a backup of the old system into it, and set confirmed = true."),
)
LEGACY_RUN_ACTIVE = staff_error("LEGACY_RUN_ACTIVE", _("Another import is running."), _("Wait until it has ended."))
LEGACY_UNFINISHED = staff_error(
    "LEGACY_UNFINISHED",
    _("Documents of the tenant have not been processed yet."),
    _("Wait for their jobs, or retry their dead letters; until then both systems answer."),
    status=409,
)
# Why a document is refused; documents.error_codes has those of the file itself.
UNKNOWN_USER = staff_error(
    "UNKNOWN_USER",
    _("The old row names no user that is known here."),
    _("Import the users first: `manage.py legacy import --users`."),
)
EMAIL_TAKEN = staff_error(
    "EMAIL_TAKEN",
    _("The e-mail of an old user belongs to another user here, or is none."),
    _("Change one of the two, then import the users again."),
)
FILE_MISSING = staff_error("FILE_MISSING", _("The old bucket has no file for the row."), REPAIR_AND_REPEAT)
FILE_NOT_DECRYPTED = staff_error(
    "FILE_NOT_DECRYPTED",
    _("The old file is encrypted, and LEGACY_DECRYPT is not set or cannot decrypt it."),
    _("Set LEGACY_DECRYPT to the dotted path of a function that returns the decrypted bytes."),
)
CHUNK_GAP = staff_error("CHUNK_GAP", _("The old chunks are not numbered without a gap."), REINGEST)
VECTOR_UNUSABLE = staff_error(
    "VECTOR_UNUSABLE", _("An old vector is missing, has another width, or has no length."), REINGEST
)
# Why a document is reingested although the run adopts.
NO_CHUNKS_TO_ADOPT = staff_error(
    "NO_CHUNKS_TO_ADOPT", _("The old document has no chunks or no parsed text."), _("Nothing: it is processed again.")
)
CHUNK_NOT_IN_TEXT = staff_error(
    "CHUNK_NOT_IN_TEXT", _("An old chunk is not in the old parsed text."), _("Nothing: it is processed again.")
)
VECTOR_DISAGREES = staff_error(
    "VECTOR_DISAGREES",
    _("A sampled chunk, embedded again, has another vector: the declared model did not make it."),
    _("Check adopt_model in the mapping file if there are many. The document is processed again."),
)
MODEL_NOT_ACTIVE = staff_error(
    "MODEL_NOT_ACTIVE",
    _("The tenant's active model is another than the declared one."),
    _("Nothing: it is processed again, with the active model."),
)
ADOPTION_NOT_SOUND = staff_error(
    "ADOPTION_NOT_SOUND",
    _("The adopted document does not satisfy the invariant of its stage."),
    _("Nothing: it is processed again."),
)
