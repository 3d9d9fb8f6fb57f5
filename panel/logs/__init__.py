"""From the bytes of logs to records in the order in which they arrived, and what is sought there.

`decode`: bytes → clean lines with byte offsets. `records`: lines → records with level, rank and
phase. `merge`: arrival times of bytes, and the records of several sources in one order. A view of
one source is

    arrivals = Arrivals(window.times)
    reader = RecordReader(window.source, arrivals)
    records = reader.read(decode(window.text.encode(), window.offset))

and of several `merge([records_of_one, records_of_other, …])`. For a log that grows, keep a
`LineDecoder` and the reader, `arrivals.extend` first and feed the new bytes then. Which engine
wrote a log, and which rank each pid of a merged stream is, `records.survey` reads from its first
bytes: `RecordReader(source, arrivals, *survey(source, head))`.

Records are `fold`ed over ranks. All that is pure. With files: `files` opens logs, `index` knows
line numbers and windows, `holes` what was punched out, `search` runs a `query` in processes that
can be killed (`worker`, `scan`; `literals` and `oneline` make it fast) and gives offsets, `pick`
makes records of these; `bounded` says which patterns may be run where nothing can be killed.
"""
