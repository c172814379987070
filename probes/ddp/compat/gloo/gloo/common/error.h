// Stands in for Gloo's header of this name; see gloo/algorithm.h here.
#pragma once
