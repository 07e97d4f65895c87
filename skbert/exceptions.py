"""What a caller may want to catch or silence."""


class TruncationWarning(UserWarning):
    """Pieces of some texts were left unread because they did not fit the encoder."""


class VocabularyWarning(UserWarning):
    """The encoder's vocabulary does not know much of what it was given."""


class VersionWarning(UserWarning):
    """A fitted estimator was saved by another version of skbert or transformers."""


class ModelNotFoundError(FileNotFoundError):
    """A pretrained model is neither on this machine nor within reach."""


class AlignmentWarning(UserWarning):
    """Spans in characters do not begin and end where words do."""
