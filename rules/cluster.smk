"""Places every rule: measuring jobs go where the site says, all others stay here or go to CPU nodes.

Included last, when all rules are defined. On one machine it only sets where temporary files go.
"""

PLACEMENTS.place()
