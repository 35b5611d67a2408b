# SPDX-License-Identifier: Apache-2.0
"""How a step becomes a state again: plain, or like a template."""
