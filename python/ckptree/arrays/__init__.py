# SPDX-License-Identifier: Apache-2.0
"""What arrays are: their element types, memory, parts, conversions, and
reading many at once."""
