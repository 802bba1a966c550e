#pragma once

#include <cstring>

#include "csrc/link/link.h"

namespace taco {

// A link of one rank: groups of size 1, and nodes of one rank in a grid.
class SoloLink : public Link {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string describe() const override { return "one rank"; }

  void allReduce(const OpContext&, Buffer buffer, const Reduction& reduction) override {
    reduceInto(buffer, buffer, reduction);
  }
  void reduceScatter(const OpContext&, std::span<const ConstBuffer> parts, Buffer out,
                     const Reduction& reduction) override {
    reduceInto(out, parts[0], reduction);
  }
  void allGather(const OpContext&, ConstBuffer in, std::span<const Buffer> outs) override {
    copy(outs[0], in);
  }
  void broadcast(const OpContext&, Buffer, int) override {}
  void exchange(const OpContext& op, std::span<const ConstBuffer> sends,
                std::span<const Buffer> receives) override {
    if (sends[0].bytes() != receives[0].bytes()) {
      throw sizesDiffer(op.call, 0, sends[0].bytes(), 0, receives[0].bytes());
    }
    copy(receives[0], sends[0]);
  }
  void fail(const Error&) override {}

 private:
  // One source: still scales (PREMUL_SUM), and stores bools as 0 or 1.
  static void reduceInto(Buffer out, ConstBuffer in, const Reduction& reduction) {
    const void* const source = in.data;
    if (in.count > 0) reduce(out.data, &source, 1, in.count, reduction);
  }
  static void copy(Buffer out, ConstBuffer in) {
    if (out.data != in.data && in.bytes() > 0) std::memmove(out.data, in.data, in.bytes());
  }
};

}  // namespace taco
