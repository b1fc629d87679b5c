/* model.h under a name of its own, for programs with several networks. */
#include "model.h"
