"""Small changes to the accelerator's SystemVerilog, each of which some check must find.

`old` is a whole expression, a whole `assign`, or whole statements; it occurs once in its file. `same` says,
of the few that no check can find, why.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change."""

    file: str  # module
    old: str
    new: str
    same: str = ""  # why it does what the original does


def mutants() -> list[Mutant]:
    """All of them, in the order of their numbers, which begin with 1."""
    return [Mutant(file, *rest) for file, rows in MUTANTS.items() for rest in rows]


MUTANTS: dict[str, list[tuple[str, ...]]] = {
    "lf_axi": [
        ("s_awvalid_i && s_wvalid_i && !bvalid_q", "s_awvalid_i && s_wvalid_i"),
        ("s_arvalid_i && !rvalid_q && !write", "s_arvalid_i && !rvalid_q"),
        ("bvalid_q <= write || (bvalid_q && !s_bready_i);", "bvalid_q <= write;"),
        ("(write && s_wstrb_i == '1) || read", "write || read"),
        ("wr_burst.beats - 8'd1", "wr_burst.beats"),
    ],
    "lf_registers": [
        ("{outcome_i.failed, 1'b1} & {2{outcome_i.done && !done_q}}", "{2{outcome_i.done && !done_q}}"),
        ("(pending_q & ~acknowledged) | happened", "(pending_q | happened) & ~acknowledged"),
        ("29'(read_base_q[31:4]) + 29'(read_base_q[3:0] != '0)", "29'(read_base_q[31:4])"),
        ("29'(write_limit_q[31:4])", "29'(write_limit_q[31:4]) + 29'd1"),
        ("!outcome_i.busy && !start_q", "!start_q"),
        ("control.start && !control.abort_", "control.start"),
        ("address[2] ? counters_q[k][63:32] : counters_q[k][31:0]", "counters_q[k][31:0]"),
    ],
    "lf_control": [
        ("watchdog_i != '0 && silence_q >= watchdog_i", "silence_q >= watchdog_i"),
        ("cycle_limit_i != '0 && cycles_q >= cycle_limit_i",
        "cycle_limit_i != '0 && cycles_q > cycle_limit_i"),
        ("bus_idle_i && exec_idle_i", "exec_idle_i"),
        ("finished_i && bus_idle_i", "finished_i"),
        ("!fails && !failed_q", "!fails"),
        ("(state_q == Quit ? moved_i : progress_i) || state_d != state_q",
        "progress_i || state_d != state_q"),
        ("k == 0 ? fault_queue_q : queue_e'(k)", "queue_e'(k)"),
        ("unit_rst_nq <= state_d != Clear;", "unit_rst_nq <= 1'b1;"),
        ("abort_i ? ErrAborted : ErrLimit", "ErrAborted"),
    ],
    "lf_sequencer": [
        ("loops_d[0].turn = loops_q[0].turn + 16'd1;", "loops_d[0].turn = loops_q[0].turn + 16'd2;"),
        ("depth_q == 2'(LoopDepth)", "1'b0"),
        ("offset_q > OffsetWidth'(LoopWords) - OffsetWidth'(size)",
        "offset_q >= OffsetWidth'(LoopWords) - OffsetWidth'(size)"),
        ("match_i != '0", "1'b0"),
        ("pushed_q[1][15:0] - 16'(run_q.wait_store)", "pushed_q[1][15:0] - 16'(run_q.wait_store) - 16'd1"),
        ("words_run_q - 32'(PayloadWords)", "words_run_q"),
        ("payload_q == 3'd1 && spare_set", "1'b0"),
        ("run_q.wait_load != 6'(NoWait)", "1'b1",
         "no wait is a distance of 63 commands, and a queue holds 8: all before them are finished"),
    ],
    "lf_fetch": [
        ("limit_q > 33'(region_i.limit)", "1'b0"),
        ("valid_q <= move && !jump;", "valid_q <= move;"),
        ("7'(Chunk) - 7'(beat[$clog2(Chunk)-1:0])", "7'(Chunk)"),
        ("after_q - step_i.keep <= 32'(RingWords)", "1'b1",
         ("a loop has at most LoopWords words, and those and the words read ahead fit the ring: the other "
         "bound is met first")),
    ],
    "lf_queue": [
        ("waiting_q + under_way_q != (PointerWidth + 1)'(Depth)", "waiting_q != (PointerWidth + 1)'(Depth)"),
        ("$signed(completed_i[queue] - head_entry_q.target[queue]) >= 16'sd0",
        "$signed(completed_i[queue] - head_entry_q.target[queue]) > 16'sd0"),
        ("!head_entry_q.wait_valid[queue]", "1'b0",
         ("a command that does not wait has a target 63 commands back, and a queue holds 8: all before them "
         "are finished")),
        ("used_q[k] && descriptors_q[k] == match_i", "1'b0"),
    ],
    "lf_prepare": [
        ("paired ? head_i.entry.from_block : head_i.entry.to_block", "head_i.entry.to_block"),
        ("slot_q <= computation_i.w_slots == '0 ? '0 : head_i.entry.slot[11:0];", "slot_q <= '0;"),
        ("over_q <= factors[8];", "over_q <= 1'b0;"),
    ],
    "lf_transfer": [
        ("asking_loaded && may_start_i && !outside_dram", "asking_loaded && !outside_dram"),
        ("next_valid_q && (!active || (step_i && last_o))", "next_valid_q"),
        ("taken_q - 32'd1", "taken_q"),
        ("bad && may_start_i", "bad"),
    ],
    "lf_job": [
        ("transfer_i.tail > 7'(Lanes)", "1'b0"),
        ("(entry_i.count == 12'd1 || LengthWidth'(transfer_i.row_beats) == line_beats_q)", "1'b1"),
        ("(product_q[26:0] + 27'd15) >> 4", "product_q[26:0] >> 4"),
        ("entry_i.slot >= {4'd0, transfer_i.slots}", "entry_i.slot > {4'd0, transfer_i.slots}"),
    ],
    "lf_modulo": [
        ("shifted >= {1'b0, divisor_q}", "shifted > {1'b0, divisor_q}"),
    ],
    "lf_requests": [
        ("7'(MaxBeats) - {1'b0, beat_q[PageWidth-1:0]}", "7'(MaxBeats)"),
        ("final_ >= region_i.limit[PageWidth-1:0]", "final_ > region_i.limit[PageWidth-1:0]"),
        ("beat_q < BeatWidth'(region_i.first)", "1'b0"),
        ("blocks_q == 10'd2 ? job_q.tail_beats : job_q.full_beats", "job_q.full_beats"),
        ("row_q    <= next_row;", ""),
    ],
    "lf_words": [
        ("slots_q == 12'd1 ? job_q.base : slot_q + PlaceWidth'(job_q.slot_words)",
         "slots_q == 12'd1 ? job_q.place : slot_q + PlaceWidth'(job_q.slot_words)"),
        ("word_q >= limit_q", "word_q > limit_q"),
        ("tail_q   <= blocks_q == 10'd2;", "tail_q   <= blocks_q <= 10'd3;"),
    ],
    "lf_load": [
        ("row_end ? rows_q.rest_bytes : 5'd16", "5'd16"),
        ("stop_i || (rows_q.rows != '0 && level_q <= 7'(FunnelBytes - BeatBytes))",
        "stop_i || (rows_q.rows != '0 && level_q <= 7'(FunnelBytes))"),
        ("stop_i || (rows_q.rows != '0 && level_q <= 7'(FunnelBytes - BeatBytes))",
        "rows_q.rows != '0 && level_q <= 7'(FunnelBytes - BeatBytes)"),
        ("assign wr_data_o   = funnel_q[Lanes*8-1:0] & mask;", "assign wr_data_o   = funnel_q[Lanes*8-1:0];"),
    ],
    "lf_store": [
        ("level_q < 8'(Threshold)", "level_q < 8'(FunnelBytes)"),
        ("row_end_q ? (filled + 8'(BeatBytes - 1)) & ~8'(BeatBytes - 1) : filled", "filled"),
        ("rd_data_i & mask_q", "rd_data_i"),
    ],
    "lf_dma": [
        ("reads_under_way_q != (PointerWidth + 1)'(Outstanding)",
        "reads_under_way_q != (PointerWidth + 1)'(Outstanding + 1)"),
        ("writes_under_way_q != (PointerWidth + 1)'(Outstanding)",
        "writes_under_way_q != (PointerWidth + 1)'(Outstanding + 1)"),
        ("read_free && !fetch_valid_i", "read_free"),
        ("writes_q[write_old_q].last", "1'b1"),
        ("reads_under_way_q == '0 && writes_under_way_q == '0", "reads_under_way_q == '0"),
        ("(PointerWidth + 1)'(wr_response_i.valid)", "(PointerWidth + 1)'(write_end)"),
        ("write_strobe_q <= !stop_i;", "write_strobe_q <= 1'b1;"),
        ("write_valid_q && wr_beat_ready_i && write_strobe_q", "write_valid_q && wr_beat_ready_i"),
        ("stop_i || store_beat_valid", "store_beat_valid"),
        ("read_beat && read_old.fetch && !stop_i", "read_beat && read_old.fetch",
         ("once it is to stop, the sequencer's words and faults are not looked at, and the ring has room for "
         "what was asked for")),
    ],
    "lf_buffer": [
        ("RowBits'(bank < word[1:0])", "RowBits'(0)"),
        ("(rd_named[i] & earlier) == '0", "1'b1"),
        ("rd_first_i && i < 2", "1'b0"),
        ("write_second[b] ? '1 : wr_lanes_i", "'1"),
        ("32'(20'(word + 20'(t))) >= BufferWords", "32'(20'(word + 20'(t))) > BufferWords",
         "a second net: those who ask for words find out themselves, before, that they lie behind the end"),
    ],
    "lf_setup": [
        ("low_row_q + span_q < 0", "low_row_q + span_q <= 0"),
        ("(d_q.narrow && d_q.a_lane != '0)", "1'b0"),
        ("32'(d_q.factors) + 32'(d_q.out_blocks) > FactorRows",
        "32'(d_q.factors) + 32'(d_q.out_blocks) >= FactorRows"),
    ],
    "lf_ring": [
        ("negative && remainder != '0", "negative"),
        ("34'(rest_q) >= shifted_q", "34'(rest_q) > shifted_q"),
    ],
    "lf_walk": [
        ("walk_q.row < signed'(23'(d_q.a_height))", "walk_q.row <= signed'(23'(d_q.a_height))"),
        ("walk_q.a_column < signed'(23'(d_q.a_width)) - signed'(23'(j))",
        "walk_q.a_column <= signed'(23'(d_q.a_width)) - signed'(23'(j))"),
        ("sum >= 33'(limit)", "sum > 33'(limit)"),
        ("walk_d.pass_offset = stepped(walk_q.pass_offset, kernel_step_q, limit_q);", ""),
        ("place >= signed'(36'(BufferWords)) - signed'(36'(t))",
        "place > signed'(36'(BufferWords)) - signed'(36'(t))",
         "the buffer too finds words that lie behind its end, with the same error"),
    ],
    "lf_columns": [
        ("!(again_q && alone_q)", "1'b1"),
        ("!bank_busy_i[bank_q] || (step.final_pass && !step.pass_start)", "1'b1"),
        ("new_o && walk_q.d.operation == 3'(DoCopy)", "1'b0"),
    ],
    "lf_second": [
        ("offset_q <= first_offset_q;", ""),
        ("held ? 3'(Window) : 3'd1", "3'd1"),
    ],
    "lf_weights": [
        ("base_q + 42'(fetch_left_q == 10'd1 ? tail_skip_q : skip_q)", "base_q + 42'(skip_q)"),
        ("last_q >= 42'(BufferWords)", "last_q > 42'(BufferWords)",
         "the buffer too finds words that lie behind its end, with the same error"),
        ("valid_q <= valid_o && !take_i;", "valid_q <= valid_o;"),
        ("7'(k) <= inner_left_q && 5'(k) <= there_q", "5'(k) <= there_q"),
        ("end_at > (AtBits+1)'(Window * Lanes) ? RowBits'(2) : RowBits'(1)", "RowBits'(1)"),
    ],
    "lf_array": [
        ("value[7] && !is_unsigned", "value[7]"),
        ("present_i[0] && 7'(l) < lanes_i && 7'(l) >= 7'(lane_i)", "present_i[0] && 7'(l) < lanes_i"),
        ("3'(r % Reach) < taps_i", "1'b1"),
        ("signed'(32'h8000_0000)", "0"),
        ("32'(others_q[2][o] + fifth[2][o])", "32'(others_q[2][o])"),
        ("held_q <= second_used_i && first_i && !descriptor_i.first;",
        "held_q <= second_used_i && !descriptor_i.first;",
         "held sums, and the second operand, are used by the first pass of a block alone"),
    ],
    "lf_accumulators": [
        ("read_i && !grows[read_bank_i][read_column_i[MemoryBits-1:0]]", "read_i"),
        ("!first_q && signed'(old[b][l*32 +: 32]) > turned_q[b][l]",
        "signed'(old[b][l*32 +: 32]) > turned_q[b][l]"),
        ("turned_q[b] <= sum_i[MemoryBits'(b) - column_i[MemoryBits-1:0]];",
        "turned_q[b] <= sum_i[MemoryBits'(b)];"),
    ],
    "lf_drain": [
        ("factor_asked_q == 3'(FactorBytes) && !factor_coming_q", "factor_asked_q == 3'(FactorBytes)"),
        ("reading_q && on_way_q != '1 && pending_q[bank_q] != '0", "reading_q && pending_q[bank_q] != '0"),
        ("reading_q && on_way_q != '1 && pending_q[bank_q] != '0", "reading_q && on_way_q != '1"),
        ("wrapped < 0 ? row_q + 36'(row_step_q) : row_q + 36'(wrap_q)",
        "wrapped <= 0 ? row_q + 36'(row_step_q) : row_q + 36'(wrap_q)"),
        ("7'(l) < lane_end", "1'b1"),
    ],
    "lf_requantize": [
        ("twice >= bounds.above", "twice > bounds.above"),
        ("twice[0] && (lost || twice[1])", "twice[0]"),
        ("twice[0] && (lost || twice[1])", "twice[0] && twice[1]"),
        ("sixteens > 2'd1 && product[30:15] != '0", "1'b0"),
        ("(found >>> 11) == (found >>> 31) ? found : (found >>> 31) ^ 32'sh7FF", "found"),
    ],
    "lf_tables": [
        ("valid_q[p] <= 1'b0;", ""),
        ("reading_q <= part_q != '1;", "reading_q <= part_q != PartBits'(Words - 2);"),
        ("valid_q[place_i] && table_q[place_i] == table_i", "valid_q[place_i]"),
    ],
    "lf_exec": [
        ("columns_fault && columns_number_q == done_number_q", "columns_fault"),
        ("weights_fault && weights_number_q == done_number_q", "weights_fault"),
        ("granted[2] && !c.valid", "granted[2]"),
        ("set_up && accepted_q", "set_up"),
    ],
    "lf_core": [
        ("prepared.bad && head[2].may_start && idle[2] && !exec_failed",
        "prepared.bad && head[2].may_start && !exec_failed"),
        ("rd_burst.addr[31:PageBits] + settings.dram_offset", "rd_burst.addr[31:PageBits]"),
        ("halted && empty == '1", "halted"),
        ("port_events.moved || aux.valid || exec_events.moved", "port_events.moved || aux.valid"),
        ("fetch_beat.err || program_outside", "program_outside"),
    ],
}  # fmt: skip
