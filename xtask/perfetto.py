"""Holds what Python's `perfetto` package reads against the trace that the files were made of: see perfetto.rs."""

import json
import sys
from collections import Counter

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

trace, packets, chrome = sys.argv[1:4]

lines = [json.loads(line) for line in open(trace) if line.endswith("}\n")]
jobs = {line["job"] for line in lines if "job" in line and line["event"] == "asked"}
ended = Counter(line["stage"] for line in lines if line.get("event") == "stage_ended" and "job" in line)
classes = {f"{line['class']} in {line['space']}" for line in lines if line.get("event") == "changed" and "class" in line}

read = Trace()
read.ParseFromString(open(packets, "rb").read())
tracks, begun, open_slices, flows, values = {}, Counter(), Counter(), Counter(), {}
for packet in read.packet:
    if packet.HasField("track_descriptor"):
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor
    if packet.HasField("track_event"):
        event = packet.track_event
        assert event.track_uuid in tracks, f"an event on no track: {event}"
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid] += 1
            if "stage" in event.categories:
                begun[event.name] += 1
        elif event.type == TrackEvent.TYPE_SLICE_END:
            open_slices[event.track_uuid] -= 1
        elif event.type == TrackEvent.TYPE_COUNTER:
            values[tracks[event.track_uuid].name] = event.counter_value
        for flow in event.flow_ids:
            flows[flow] += 1
        for flow in event.terminating_flow_ids:
            assert flows[flow] == 1, f"flow {flow} ends and has not begun"
names = {track.name for track in tracks.values()}
assert jobs <= names, f"jobs without a track: {jobs - names}"
assert begun == ended, f"stages: {begun} are there, {ended} were"
assert all(count == 0 for count in open_slices.values()), "a slice has no end"
assert flows, "no job flows from stage to stage"
assert classes <= set(values), f"classes without a counter: {classes - set(values)}"
held = {name: value for name, value in values.items() if name in classes and value}
print(f"{len(read.packet)} packets: {len(jobs)} jobs, {sum(begun.values())} stages, {len(flows)} flows, {len(values)} counters")
if held:
    print(f"held when it ends: {held}")

try:
    from perfetto.trace_processor import TraceProcessor

    for file in (packets, chrome):
        processor = TraceProcessor(trace=file)
        rows = processor.query("select count(*) as n from slice where category = 'stage'")
        found = next(iter(rows)).n
        assert found == sum(ended.values()), f"{file}: {found} stages are found, {sum(ended.values())} were"
        print(f"{file}: the trace processor finds {found} stages")
        processor.close()
except AssertionError:
    raise
except Exception as error:  # It is downloaded when it is first used.
    print(f"the trace processor cannot be had here ({type(error).__name__}); the files were read by the package's parser alone")
    events = json.load(open(chrome))["traceEvents"]
    found = Counter(event["name"] for event in events if event.get("cat") == "stage")
    assert found == ended, f"stages in the JSON file: {found} are there, {ended} were"
