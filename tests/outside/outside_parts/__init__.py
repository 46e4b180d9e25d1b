"""An environment, a template, an estimator and a policy backend that hgpo does not know."""
