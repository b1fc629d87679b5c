// The accelerator: sequencer, three queues, DMA engine, compute engine and buffer behind one memory port and one port of registers.
module lf_core
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
#(
  parameter int unsigned Lanes = 16,           // channels side by side: 16, 32 or 64
  parameter int unsigned BufferBytes = 262144  // a multiple of 4 * Lanes
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  // Registers: one access a cycle. What is read appears in the next cycle.
  input  logic         reg_valid_i,
  input  logic         reg_write_i,
  input  logic [11:0]  reg_addr_i,
  input  logic [31:0]  reg_wdata_i,
  output logic [31:0]  reg_rdata_o,
  output logic         irq_o,           // level: an interrupt that is enabled is pending
  // Memory, reads. A request is accepted when valid and ready, and so is a beat. Beats come in the order of the requests.
  output logic         rd_req_valid_o,
  input  logic         rd_req_ready_i,
  output logic [31:0]  rd_req_addr_o,   // bytes; a multiple of 16
  output logic [7:0]   rd_req_beats_o,  // 1 to 64; never across 4 KiB
  input  logic         rd_valid_i,
  output logic         rd_ready_o,
  input  logic [127:0] rd_data_i,
  input  logic         rd_err_i,
  // Memory, writes. Beats go in the order of the requests, and may go before their request is accepted.
  output logic         wr_req_valid_o,
  input  logic         wr_req_ready_i,
  output logic [31:0]  wr_req_addr_o,
  output logic [7:0]   wr_req_beats_o,
  output logic         wr_valid_o,
  input  logic         wr_ready_i,
  output logic [127:0] wr_data_o,
  output logic [15:0]  wr_strb_o,
  output logic         wr_last_o,       // of its request
  input  logic         wr_resp_valid_i, // one for each request, in order, always accepted
  input  logic         wr_resp_err_i
);
  localparam int unsigned BufferWords = BufferBytes / Lanes;
  localparam int unsigned PageBits = $clog2(PageBytes);
  localparam int unsigned Classes = int'(ClassInstruction) + 1;

  // A word has whole beats, a depthwise convolution 16 rows of the array, and a number of lanes 7 bits.
  if (Lanes != 16 && Lanes != 32 && Lanes != 64) begin : gen_bad_lanes
    $error("lf_core: found Lanes = %0d; accepted: 16, 32, 64", Lanes);
  end
  // Banks have the same number of words, at least 2, and a word's number has 20 bits.
  if (BufferBytes % (Window * Lanes) != 0 || BufferWords < 2 * Window || BufferWords > 1 << 20) begin : gen_bad_buffer
    $error("lf_core: found BufferBytes = %0d; accepted: multiples of %0d, from %0d to %0d", BufferBytes, Window * Lanes, 2 * Window * Lanes,
           Lanes << 20);
  end

  // Control.
  logic              unit_rst_n;
  logic              start;
  logic              aborts;
  logic              run;
  logic              stop;
  logic              busy;
  logic              ended;
  logic              failed;
  error_e            error;
  queue_e            error_queue;
  logic [31:0]       error_index;
  logic [27:0]       program_beat;
  logic [31:0]       program_words;
  region_t           read_region;
  region_t           write_region;
  logic [31:0]       watchdog;
  logic [31:0]       cycle_limit;
  logic [31:PageBits] dram_offset;
  logic [Counters-1:0] count;
  fault_t [3:0]      fault;
  fault_t            sequencer_fault;
  queue_e            fault_queue;
  logic              finished;
  logic              progress;
  logic              bus_idle;

  // Program.
  logic [31:0]            keep;
  logic                   word_valid;
  logic [127:0]           word;
  logic                   program_outside;
  logic                   fetch_valid;
  request_t               fetch;
  logic                   fetch_ready;
  logic                   fetch_beat_valid;
  logic [127:0]           fetch_beat;
  logic                   fetch_err;
  logic                   halted;
  logic                   word_take;
  logic                   word_jump;
  logic [31:0]            word_target;
  logic [31:0]            words_run;
  logic                   describe;
  logic [5:0]             describe_entry;
  logic [PayloadBits-1:0] describe_payload;

  // Queues: LOAD, STORE, EXEC.
  logic [2:0]        push_valid;
  logic [2:0]        push_ready;
  entry_t            push;
  logic [2:0]        read;
  logic [2:0][5:0]   read_descriptor;
  transfer_t [1:0]   transfer;
  computation_t      computation;
  logic [2:0]        head_valid;
  entry_t [2:0]      head;
  logic [2:0]        may_start;
  logic [2:0]        take;
  logic [2:0]        done;
  logic [2:0][31:0]  completed;
  logic [2:0][15:0]  completed_low;
  logic [2:0]        empty;
  logic [2:0]        idle;
  logic [5:0]        match_entry;
  logic [2:0]        match;

  // Computation.
  computation_t      prepared;
  logic              prepared_valid;
  logic              prepared_bad;
  error_e            prepared_error;
  logic              exec_valid;
  logic              exec_ready;
  logic              exec_idle;
  logic              exec_failed;
  error_e            exec_error;
  logic              exec_fault;
  logic              exec_busy, exec_moved;
  logic              array_active;
  logic              weight_stall;
  logic              buffer_stall;
  logic              drain_stall;
  logic              aux_valid;
  space_e            aux_space;
  logic [19:0]       aux_word;
  logic [Lanes*8-1:0] aux_data;

  // Buffer: 0 to 2 of the compute engine, 3 (writes: 1) of the DMA.
  logic [3:0]                          buffer_rd_valid;
  logic [3:0][19:0]                    buffer_rd_word;
  logic [3:0][Window-1:0]              buffer_rd_mask;
  logic                                buffer_rd_first;
  logic [3:0]                          buffer_rd_grant;
  logic [3:0]                          buffer_rd_fault;
  logic [3:0][Window-1:0][Lanes*8-1:0] buffer_rd_data;
  logic [1:0]                          buffer_wr_valid;
  logic [1:0][19:0]                    buffer_wr_word;
  logic [1:0][Window-1:0]              buffer_wr_mask;
  logic [1:0][Window-1:0][Lanes*8-1:0] buffer_wr_data;
  logic [Lanes-1:0]                    buffer_wr_lanes;
  logic [1:0]                          buffer_wr_grant;
  logic [1:0]                          buffer_wr_fault;

  // Memory port.
  logic [31:0] rd_req_addr;  // as the program has it
  logic [31:0] wr_req_addr;
  logic        read_beat;
  class_e      read_class;
  logic [4:0]  written_bytes;
  class_e      written_class;
  logic        moved;
  logic        unused;

  lf_registers #(
    .Lanes      (Lanes),
    .BufferBytes(BufferBytes)
  ) u_registers (
    .clk_i,
    .rst_ni,
    .valid_i       (reg_valid_i),
    .write_i       (reg_write_i),
    .addr_i        (reg_addr_i),
    .wdata_i       (reg_wdata_i),
    .rdata_o       (reg_rdata_o),
    .irq_o,
    .start_o       (start),
    .abort_o       (aborts),
    .offset_o      (dram_offset),
    .program_o     (program_beat),
    .words_o       (program_words),
    .read_region_o (read_region),
    .write_region_o(write_region),
    .watchdog_o    (watchdog),
    .cycle_limit_o (cycle_limit),
    .busy_i        (busy),
    .done_i        (ended),
    .failed_i      (failed),
    .bus_idle_i    (bus_idle),
    .error_i       (error),
    .queue_i       (error_queue),
    .index_i       (error_index),
    .count_i       (count),
    .count_busy_i  (busy)
  );

  lf_control u_control (
    .clk_i,
    .rst_ni,
    .start_i      (start),
    .abort_i      (aborts),
    .watchdog_i   (watchdog),
    .cycle_limit_i(cycle_limit),
    .fault_i      (fault),
    .fault_queue_i(fault_queue),
    .finished_i   (finished),
    .progress_i   (progress),
    .moved_i      (moved),
    .bus_idle_i   (bus_idle),
    .exec_idle_i  (exec_idle || exec_failed),
    .under_way_i  (~idle),
    .completed_i  ({completed, words_run}),
    .unit_rst_no  (unit_rst_n),
    .run_o        (run),
    .stop_o       (stop),
    .busy_o       (busy),
    .done_o       (ended),
    .failed_o     (failed),
    .error_o      (error),
    .queue_o      (error_queue),
    .index_o      (error_index)
  );

  lf_fetch u_fetch (
    .clk_i,
    .rst_ni         (unit_rst_n),
    .run_i          (run),
    .region_i       (read_region),
    .program_i      (program_beat),
    .words_i        (program_words),
    .keep_i         (keep),
    .valid_o        (word_valid),
    .word_o         (word),
    .take_i         (word_take),
    .jump_i         (word_jump),
    .target_i       (word_target),
    .outside_o      (program_outside),
    .request_valid_o(fetch_valid),
    .request_o      (fetch),
    .request_ready_i(fetch_ready),
    .beat_valid_i   (fetch_beat_valid),
    .beat_i         (fetch_beat)
  );

  lf_sequencer u_sequencer (
    .clk_i,
    .rst_ni            (unit_rst_n),
    .run_i             (run),
    .words_i           (program_words),
    .keep_o            (keep),
    .word_valid_i      (word_valid),
    .word_i            (word),
    .take_o            (word_take),
    .jump_o            (word_jump),
    .target_o          (word_target),
    .push_valid_o      (push_valid),
    .push_ready_i      (push_ready),
    .push_o            (push),
    .write_o           (describe),
    .write_descriptor_o(describe_entry),
    .write_payload_o   (describe_payload),
    .match_o           (match_entry),
    .match_i           (match),
    .halted_o          (halted),
    .fault_o           (sequencer_fault),
    .fault_queue_o     (fault_queue),
    .words_run_o       (words_run)
  );

  lf_descriptors u_descriptors (
    .clk_i,
    .write_i           (describe),
    .write_descriptor_i(describe_entry),
    .write_payload_i   (describe_payload),
    .read_i            (read),
    .read_descriptor_i (read_descriptor),
    .transfer_o        (transfer),
    .computation_o     (computation)
  );

  for (genvar queue = 0; queue < 3; queue++) begin : gen_queue
    lf_queue u_queue (
      .clk_i,
      .rst_ni           (unit_rst_n),
      .push_valid_i     (push_valid[queue]),
      .push_ready_o     (push_ready[queue]),
      .push_i           (push),
      .read_o           (read[queue]),
      .read_descriptor_o(read_descriptor[queue]),
      .head_valid_o     (head_valid[queue]),
      .head_o           (head[queue]),
      .may_start_o      (may_start[queue]),
      .take_i           (take[queue]),
      .done_i           (done[queue]),
      .completed_i      (completed_low),
      .completed_o      (completed[queue]),
      .empty_o          (empty[queue]),
      .idle_o           (idle[queue]),
      .match_i          (match_entry),
      .match_o          (match[queue])
    );

    assign completed_low[queue] = completed[queue][15:0];
  end

  lf_dma #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_dma (
    .clk_i,
    .rst_ni             (unit_rst_n),
    .stop_i             (stop),
    .read_region_i      (read_region),
    .write_region_i     (write_region),
    .idle_o             (bus_idle),
    .head_valid_i       (head_valid[1:0]),
    .may_start_i        (may_start[1:0]),
    .transfer_i         (transfer),
    .entry_i            (head[1:0]),
    .take_o             (take[1:0]),
    .done_o             (done[1:0]),
    .fault_o            (fault[2:1]),
    .fetch_valid_i      (fetch_valid),
    .fetch_i            (fetch),
    .fetch_ready_o      (fetch_ready),
    .fetch_beat_valid_o (fetch_beat_valid),
    .fetch_beat_o       (fetch_beat),
    .fetch_err_o        (fetch_err),
    .wr_valid_o         (buffer_wr_valid[1]),
    .wr_word_o          (buffer_wr_word[1]),
    .wr_data_o          (buffer_wr_data[1][0]),
    .wr_grant_i         (buffer_wr_grant[1]),
    .rd_valid_o         (buffer_rd_valid[3]),
    .rd_word_o          (buffer_rd_word[3]),
    .rd_grant_i         (buffer_rd_grant[3]),
    .rd_data_i          (buffer_rd_data[3][0]),
    .aux_valid_o        (aux_valid),
    .aux_space_o        (aux_space),
    .aux_word_o         (aux_word),
    .aux_data_o         (aux_data),
    .read_beat_o        (read_beat),
    .read_class_o       (read_class),
    .written_bytes_o    (written_bytes),
    .written_class_o    (written_class),
    .moved_o            (moved),
    .mem_rd_req_valid_o (rd_req_valid_o),
    .mem_rd_req_ready_i (rd_req_ready_i),
    .mem_rd_req_addr_o  (rd_req_addr),
    .mem_rd_req_beats_o (rd_req_beats_o),
    .mem_rd_valid_i     (rd_valid_i),
    .mem_rd_ready_o     (rd_ready_o),
    .mem_rd_data_i      (rd_data_i),
    .mem_rd_err_i       (rd_err_i),
    .mem_wr_req_valid_o (wr_req_valid_o),
    .mem_wr_req_ready_i (wr_req_ready_i),
    .mem_wr_req_addr_o  (wr_req_addr),
    .mem_wr_req_beats_o (wr_req_beats_o),
    .mem_wr_valid_o     (wr_valid_o),
    .mem_wr_ready_i     (wr_ready_i),
    .mem_wr_data_o      (wr_data_o),
    .mem_wr_strb_o      (wr_strb_o),
    .mem_wr_last_o      (wr_last_o),
    .mem_wr_resp_valid_i(wr_resp_valid_i),
    .mem_wr_resp_err_i  (wr_resp_err_i)
  );

  assign buffer_wr_mask[1]             = Window'(1);
  assign buffer_wr_data[1][Window-1:1] = '0;
  assign buffer_rd_mask[3]             = Window'(1);

  lf_prepare #(
    .Lanes(Lanes)
  ) u_prepare (
    .clk_i,
    .rst_ni       (unit_rst_n),
    .valid_i      (head_valid[2]),
    .computation_i(computation),
    .entry_i      (head[2]),
    .valid_o      (prepared_valid),
    .computation_o(prepared),
    .bad_o        (prepared_bad),
    .error_o      (prepared_error),
    .take_i       (take[2])
  );

  lf_exec #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_exec (
    .clk_i,
    .rst_ni        (unit_rst_n),
    .valid_i       (prepared_valid && !stop),
    .may_start_i   (exec_valid),
    .ready_o       (exec_ready),
    .descriptor_i  (prepared),
    .row_i         (head[2].row),
    .count_i       (head[2].count),
    .done_o        (done[2]),
    .idle_o        (exec_idle),
    .error_o       (exec_failed),
    .error_code_o  (exec_error),
    .rd_valid_o    (buffer_rd_valid[2:0]),
    .rd_word_o     (buffer_rd_word[2:0]),
    .rd_mask_o     (buffer_rd_mask[2:0]),
    .rd_first_o    (buffer_rd_first),
    .rd_grant_i    (buffer_rd_grant[2:0]),
    .rd_data_i     (buffer_rd_data[2:0]),
    .wr_valid_o    (buffer_wr_valid[0]),
    .wr_word_o     (buffer_wr_word[0]),
    .wr_mask_o     (buffer_wr_mask[0]),
    .wr_data_o     (buffer_wr_data[0]),
    .wr_lanes_o    (buffer_wr_lanes),
    .wr_grant_i    (buffer_wr_grant[0]),
    .fault_i       (exec_fault),
    .aux_valid_i   (aux_valid),
    .aux_space_i   (aux_space),
    .aux_word_i    (aux_word),
    .aux_data_i    (aux_data),
    .moved_o       (exec_moved),
    .busy_o        (exec_busy),
    .array_active_o(array_active),
    .weight_stall_o(weight_stall),
    .buffer_stall_o(buffer_stall),
    .drain_stall_o (drain_stall)
  );

  assign exec_valid = prepared_valid && may_start[2] && !stop;
  assign take[2]    = exec_valid && exec_ready;
  assign exec_fault = buffer_rd_fault[2:0] != '0 || buffer_wr_fault[0];

  lf_buffer #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_buffer (
    .clk_i,
    .rst_ni    (unit_rst_n),
    .rd_valid_i(buffer_rd_valid),
    .rd_word_i (buffer_rd_word),
    .rd_mask_i (buffer_rd_mask),
    .rd_first_i(buffer_rd_first),
    .rd_grant_o(buffer_rd_grant),
    .rd_fault_o(buffer_rd_fault),
    .rd_data_o (buffer_rd_data),
    .wr_valid_i(buffer_wr_valid),
    .wr_word_i (buffer_wr_word),
    .wr_mask_i (buffer_wr_mask),
    .wr_data_i (buffer_wr_data),
    .wr_lanes_i(buffer_wr_lanes),
    .wr_grant_o(buffer_wr_grant),
    .wr_fault_o(buffer_wr_fault)
  );

  // The sequencer also answers for the fetching of the program.
  always_comb begin
    fault[0] = sequencer_fault;
    if (fetch_err || program_outside) fault[0] = '{valid: 1'b1, code: fetch_err ? ErrBus : ErrRegion, index: words_run};
    // What is wrong with a command shows once those before it are done.
    fault[3] = '{valid: exec_failed, code: exec_error, index: completed[2]};
    if (prepared_bad && may_start[2] && idle[2] && !exec_failed) fault[3] = '{valid: 1'b1, code: prepared_error, index: completed[2]};
  end

  assign rd_req_addr_o = {rd_req_addr[31:PageBits] + dram_offset, rd_req_addr[PageBits-1:0]};
  assign wr_req_addr_o = {wr_req_addr[31:PageBits] + dram_offset, wr_req_addr[PageBits-1:0]};

  assign finished = halted && empty == '1;
  assign progress = (push_valid & push_ready) != '0 || take != '0 || done != '0 || moved || aux_valid || exec_moved ||
                    buffer_rd_grant != '0 || buffer_wr_grant != '0;

  always_comb begin
    count                 = '0;
    count[5'(CountCycles)]    = 1'b1;
    count[5'(CountLoadBusy)]  = !idle[0];
    count[5'(CountStoreBusy)] = !idle[1];
    count[5'(CountExecBusy)]  = exec_busy;
    count[5'(CountLoadWait)]  = head_valid[0] && !may_start[0];
    count[5'(CountStoreWait)] = head_valid[1] && !may_start[1];
    count[5'(CountExecWait)]  = head_valid[2] && !may_start[2];
    count[5'(CountArrayActive)] = array_active;
    count[5'(CountWeightStall)] = weight_stall;
    count[5'(CountBufferStall)] = buffer_stall;
    count[5'(CountDrainStall)]  = drain_stall;
    count[5'(CountLoads)]  = done[0];
    count[5'(CountStores)] = done[1];
    count[5'(CountExecs)]  = done[2];
    count[5'(CountWords)]  = word_take;
    // By class, in the order of class_e.
    count[5'(CountReadInput)+:Classes]    = Classes'(read_beat) << read_class;
    count[5'(CountWrittenInput)+:Classes] = Classes'(written_bytes != '0) << written_class;
  end

  assign unused = ^{buffer_rd_data[3][Window-1:1], buffer_wr_fault[1], buffer_rd_fault[3]};
endmodule
