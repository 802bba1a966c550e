#include "csrc/link/link.h"

#include "csrc/base/format.h"

namespace taco {

Error sizesDiffer(const Call& call, int sender, size_t sentBytes, int receiver,
                  size_t expectedBytes) {
  return Error(
      ErrorCode::kMismatch,
      str(call.describe(), ": rank ", sender, " sends ", sentBytes, " bytes to rank ", receiver,
          ", which expects ", expectedBytes, " bytes from it; make the sizes (or splits) agree"),
      sender);
}

std::shared_ptr<void> Link::sharedMemory(const OpContext&, size_t, std::string* whyNot) {
  *whyNot = describe() + ": they share no memory";
  return nullptr;
}

void Link::allReducePieces(const OpContext& op, Pieces& pieces, const Reduction& reduction) {
  runPieces(pieces, [&](size_t, Buffer piece) { allReduce(op, piece, reduction); });
}

}  // namespace taco
