import math

import torch

from hgpo.training.losses import approximate_kl, k3_divergence


def test_k3_by_hand():
    # d = log 2: 2 - log 2 - 1;  d = -log 2: 1/2 + log 2 - 1
    log_prob = torch.tensor([[0.25, 0.5, 0.3]]).log()
    reference = torch.tensor([[0.5, 0.25, 0.3]]).log()
    expected = torch.tensor([[1 - math.log(2), math.log(2) - 0.5, 0.0]])
    torch.testing.assert_close(k3_divergence(log_prob, reference), expected)


def test_k3_is_unbiased():
    policy, reference = torch.tensor([0.7, 0.2, 0.1]).log(), torch.tensor([0.5, 0.3, 0.2]).log()
    exact = (policy.exp() * (policy - reference)).sum()
    torch.testing.assert_close((policy.exp() * k3_divergence(policy, reference)).sum(), exact)


def test_k3_is_bounded_and_so_is_its_gradient():
    log_prob = torch.tensor([-100.0], requires_grad=True)
    divergence = k3_divergence(log_prob, torch.tensor([0.0]))
    divergence.sum().backward()
    assert divergence.item() == 10.0
    assert log_prob.grad.item() == 0.0


def test_approximate_kl():
    log_prob = torch.tensor([-1.0], requires_grad=True)
    estimate = approximate_kl(log_prob, torch.tensor([-0.5]))
    assert estimate.item() == 0.5
    assert not estimate.requires_grad
