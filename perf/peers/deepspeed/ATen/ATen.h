#pragma once  // nothing of it is used; see torch/extension.h beside it
