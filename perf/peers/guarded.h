#pragma once

#include <exception>
#include <string>

#include "perf/native/peer.h"

// For plug-ins in C++, whose calls must not let an exception out. Each is one source file, so these
// are its own.
static std::string lastErrorText;

template <typename Body>
int guarded(Body body) {
  try {
    body();
    return TACO_PEER_OK;
  } catch (const std::exception& error) {
    lastErrorText = error.what();
    return TACO_PEER_FAILED;
  }
}
