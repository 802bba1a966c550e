/* What a peer is to the benchmark: a shared object with one function, tacoPeer(). Plain C, so that
   a peer may be written in C, in C++, and with compilers and C++ libraries of its own. Calls of one
   process never overlap. */
#ifndef TACO_PERF_NATIVE_PEER_H
#define TACO_PERF_NATIVE_PEER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum TacoPeerType { TACO_PEER_FLOAT32 = 0, TACO_PEER_FLOAT16 = 1, TACO_PEER_BFLOAT16 = 2 };

enum TacoPeerAnswer {
  TACO_PEER_OK = 0,
  TACO_PEER_FAILED = 1, /* lastError() says why */
  TACO_PEER_UNSUPPORTED =
      2, /* this type or operation: nothing was sent, the measurement goes on without it */
};

struct TacoPeerJob {
  int rank;
  int size;
  const char* argument; /* what stood behind the path on the command line, or "" */
  /* Collective: every rank gives `bytesEach` bytes (at most 4096) and gets those of all ranks, in
     rank order. For addresses and keys, before the peer itself can talk. */
  void (*exchange)(void* context, const void* own, void* all, size_t bytesEach);
  void* context;
};

struct TacoPeer {
  int (*init)(const struct TacoPeerJob* job); /* collective */
  const char* (*describe)(void);              /* library, version and what is special; after init */
  const char* (*lastError)(void);

  /* All counts in elements. NULL: the peer has no such operation. The reductions are sums. */
  int (*allReduce)(void* data, size_t count, int type); /* in place */
  int (*allGather)(const void* in, void* out, size_t countEach,
                   int type); /* out: size * countEach */
  int (*reduceScatter)(const void* in, void* out, size_t countEach,
                       int type); /* in: size * countEach */
  int (*broadcast)(void* data, size_t count, int type, int root);
  int (*allToAll)(const void* in, void* out, size_t countEach,
                  int type); /* both: size * countEach */

  void (*finish)(void); /* collective */
};

__attribute__((visibility("default"))) const struct TacoPeer* tacoPeer(void);

#ifdef __cplusplus
}
#endif

#endif
