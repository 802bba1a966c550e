"""Sends and receives in the flight records of a group: which have no counterpart.

Messages between two ranks with one tag are matched in order, so the nth send belongs to the nth receive. Where a
record has forgotten older operations the two no longer begin with the same message: there only what is not over
counts, since both ends of a message that has arrived are over.
"""


def explain_messages(members):
    """(kind, text, ranks) for each channel, which is (sender, receiver, tag), where something does not fit."""
    found = []
    channels = {}
    for rank, member in members.items():
        for one in member.messages:
            if one["op"] == "send":
                channels.setdefault((rank, one["peer"], one["tag"]), ([], []))[0].append(one)
            elif one["peer"] is not None and one["peer"] >= 0:
                channels.setdefault((one["peer"], rank, one["tag"]), ([], []))[1].append(one)
    for (sender, receiver, tag), (sends, receives) in sorted(channels.items()):
        if sender in members and receiver in members:
            found += _channel(members, sender, receiver, tag, sends, receives, channels)
        elif receives and not _is_over(receives[-1]):
            found.append(("receive", f"Rank {receiver} waits for a message from rank {sender} with tag {tag}, and "
                          f"there is no dump of rank {sender}.", [sender, receiver]))
        elif sends and not _is_over(sends[-1]):
            found.append(("send", f"Rank {sender} waits for rank {receiver} to receive its message with tag {tag}, and "
                          f"there is no dump of rank {receiver}.", [sender, receiver]))
    return found


def _channel(members, sender, receiver, tag, sends, receives, channels):
    if members[sender].dump["forgotten"] or members[receiver].dump["forgotten"]:
        sends = [one for one in sends if not _is_over(one)]
        receives = [one for one in receives if not _is_over(one)]
    both = min(len(sends), len(receives))
    for send, receive in zip(sends, receives):
        if send["bytes"] != receive["bytes"]:
            yield ("size", f"Rank {sender} sends {send['bytes']} bytes to rank {receiver} with tag {tag}, which "
                   f"expects {receive['bytes']} bytes.", [sender, receiver])
            break
    # A receive from any rank that has not been matched yet may be meant for them.
    open_to_all = sum(one["op"] == "recv" and one["peer"] == -1 and one["tag"] == tag
                      for one in members[receiver].messages)
    lost = len(sends) - both - open_to_all
    if lost > 0:
        first = sends[len(sends) - lost]
        yield ("send", f"Rank {sender} has sent {_messages(lost)} to rank {receiver} with tag {tag} (the first of "
               f"{first['bytes']} bytes) that it has posted no receive for."
               f"{_other_tags(channels, sender, receiver, tag, 1)}", [sender, receiver])
    if len(receives) > both:
        yield ("receive", f"Rank {receiver} has posted {len(receives) - both} receive(s) from rank {sender} with tag "
               f"{tag} (the first of {receives[both]['bytes']} bytes), and rank {sender} has not sent that much."
               f"{_other_tags(channels, sender, receiver, tag, 0)}", [sender, receiver])


def _other_tags(channels, sender, receiver, tag, side):
    """Where a message and its receive have different tags, either alone looks lost."""
    others = [channel[2] for channel, lists in sorted(channels.items())
              if channel[:2] == (sender, receiver) and channel[2] != tag and len(lists[side]) > len(lists[1 - side])]
    if not others:
        return ""
    verb = "receives" if side == 1 else "sends"
    return f" There are {verb} between them with tag {', '.join(map(str, others[:5]))}: is the tag right?"


def _is_over(operation):
    return operation["state"] == "done"


def _messages(number):
    return "a message" if number == 1 else f"{number} messages"
