"""The scikit-learn faces: check, call the stages, keep fitted state."""
