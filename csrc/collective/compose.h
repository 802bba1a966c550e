#pragma once

#include <span>

#include "csrc/link/link.h"

namespace taco {

// The operations that no link needs to know: each is a few sentences over its verbs. P = ranks.

// Everyone's `in` on the root: P buffers there, none elsewhere. Sent: in.bytes() a rank.
void gather(Link& link, const OpContext& op, ConstBuffer in, std::span<const Buffer> outs,
            int root);

// The root's `ins` (P buffers there, none elsewhere), one to each rank.
void scatter(Link& link, const OpContext& op, std::span<const ConstBuffer> ins, Buffer out,
             int root);

// The reduction of everyone's `in`, on the root's `out` only; nothing else is written. Every rank
// reduces a slice, then the slices go to the root: (P-1)/P S + S/P bytes a rank, instead of the
// root alone reading and adding (P-1) S.
void reduceToRoot(Link& link, const OpContext& op, ConstBuffer in, Buffer out,
                  const Reduction& reduction, int root);

// Returns when every rank has called it.
void barrier(Link& link, const OpContext& op);

}  // namespace taco
