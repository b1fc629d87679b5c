// The accelerator: sequencer, three queues, DMA engine, compute engine and buffer behind one memory port and
// one port of registers.
module lf_core
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
  import lf_port_pkg::*;
#(
  parameter int unsigned Lanes = 16,           // channels side by side: 16, 32 or 64
  parameter int unsigned BufferBytes = 262144  // a multiple of 4 * Lanes
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  // Registers. What is read appears in the next cycle.
  input  register_access_t reg_i,
  output logic [31:0]      reg_rdata_o,
  output logic             irq_o,           // level: an interrupt that is enabled is pending
  // Memory, reads. Beats come in the order of the bursts.
  output burst_t           rd_burst_o,
  input  logic             rd_burst_ready_i,
  input  read_beat_t       rd_beat_i,
  output logic             rd_beat_ready_o,
  // Memory, writes. Beats go in the order of the bursts, and may go before their burst is accepted.
  output burst_t           wr_burst_o,
  input  logic             wr_burst_ready_i,
  output write_beat_t      wr_beat_o,
  input  logic             wr_beat_ready_i,
  input  write_response_t  wr_response_i
);
  localparam int unsigned BufferWords = BufferBytes / Lanes;
  localparam int unsigned PageBits = $clog2(PageBytes);
  localparam int unsigned Classes = int'(ClassInstruction) + 1;

  // A word has whole beats, a depthwise convolution 16 rows of the array, and a number of lanes 7 bits.
  if (Lanes != 16 && Lanes != 32 && Lanes != 64) begin : gen_bad_lanes
    $error("lf_core: found Lanes = %0d; accepted: 16, 32, 64", Lanes);
  end
  // Banks have the same number of words, at least 2, and a word's number has 20 bits.
  if (BufferBytes % (Window * Lanes) != 0 || BufferWords < 2 * Window ||
      BufferWords > 1 << 20) begin : gen_bad_buffer
    $error("lf_core: found BufferBytes = %0d; accepted: multiples of %0d, from %0d to %0d", BufferBytes,
           Window * Lanes, 2 * Window * Lanes, Lanes << 20);
  end

  // Control.
  logic                unit_rst_n;
  logic                start;
  logic                aborts;
  logic                run;
  logic                stop;
  settings_t           settings;
  outcome_t            outcome;
  logic [Counters-1:0] count;
  fault_t [3:0]        fault;
  fault_t              sequencer_fault;
  queue_e              fault_queue;
  logic                progress;
  logic                bus_idle;

  // Program.
  program_word_t  program_word;
  program_step_t  program_step;
  logic           program_outside;
  logic           fetch_valid;
  request_t       fetch;
  logic           fetch_ready;
  read_beat_t     fetch_beat;
  logic           halted;
  logic [31:0]    words_run;
  describe_port_t describe;

  // Queues: LOAD, STORE, EXEC.
  logic [2:0]         push_valid;
  logic [2:0]         push_ready;
  entry_t             push;
  logic [2:0]         read;
  logic [2:0][5:0]    read_descriptor;
  transfer_t [1:0]    transfer;
  computation_t       computation;
  head_t [2:0]        head;
  logic [2:0]         take;
  logic [2:0]         done;
  queue_state_t [2:0] state;
  logic [2:0]         empty;
  logic [2:0]         idle;
  logic [2:0][15:0]   completed;
  logic [5:0]         match_entry;
  logic [2:0]         match;

  // Computation.
  prepared_t          prepared;
  logic               exec_valid;
  logic               exec_ready;
  logic               exec_idle;
  logic               exec_failed;
  error_e             exec_error;
  exec_events_t       exec_events;
  aux_write_t         aux;
  logic [Lanes*8-1:0] aux_data;

  // Buffer: 0 to 2 of the compute engine, 3 (writes: 1) of the DMA.
  buffer_request_t [3:0]               buffer_rd;
  logic                                buffer_rd_first;
  buffer_response_t [3:0]              buffer_rd_response;
  logic [3:0][Window-1:0][Lanes*8-1:0] buffer_rd_data;
  buffer_request_t [1:0]               buffer_wr;
  logic [1:0][Window-1:0][Lanes*8-1:0] buffer_wr_data;
  logic [Lanes-1:0]                    buffer_wr_lanes;
  buffer_response_t [1:0]              buffer_wr_response;
  logic [5:0]                          buffer_granted;

  // Memory port.
  burst_t       rd_burst;  // as the program has it
  burst_t       wr_burst;
  port_events_t port_events;
  logic         unused;

  lf_registers #(
    .Lanes      (Lanes),
    .BufferBytes(BufferBytes)
  ) u_registers (
    .clk_i,
    .rst_ni,
    .access_i    (reg_i),
    .rdata_o     (reg_rdata_o),
    .irq_o,
    .start_o     (start),
    .abort_o     (aborts),
    .settings_o  (settings),
    .outcome_i   (outcome),
    .bus_idle_i  (bus_idle),
    .count_i     (count),
    .count_busy_i(outcome.busy)
  );

  lf_control u_control (
    .clk_i,
    .rst_ni,
    .start_i      (start),
    .abort_i      (aborts),
    .watchdog_i   (settings.watchdog),
    .cycle_limit_i(settings.cycle_limit),
    .fault_i      (fault),
    .fault_queue_i(fault_queue),
    .finished_i   (halted && empty == '1),
    .progress_i   (progress),
    .moved_i      (port_events.moved),
    .bus_idle_i   (bus_idle),
    .exec_idle_i  (exec_idle || exec_failed),
    .under_way_i  (~idle),
    .completed_i  ({state[2].completed, state[1].completed, state[0].completed, words_run}),
    .unit_rst_no  (unit_rst_n),
    .run_o        (run),
    .stop_o       (stop),
    .outcome_o    (outcome)
  );

  lf_fetch u_fetch (
    .clk_i,
    .rst_ni         (unit_rst_n),
    .run_i          (run),
    .region_i       (settings.read_region),
    .program_i      (settings.program_beat),
    .words_i        (settings.program_words),
    .word_o         (program_word),
    .step_i         (program_step),
    .outside_o      (program_outside),
    .request_valid_o(fetch_valid),
    .request_o      (fetch),
    .request_ready_i(fetch_ready),
    .beat_valid_i   (fetch_beat.valid),
    .beat_i         (fetch_beat.data)
  );

  lf_sequencer u_sequencer (
    .clk_i,
    .rst_ni       (unit_rst_n),
    .run_i        (run),
    .words_i      (settings.program_words),
    .word_i       (program_word),
    .step_o       (program_step),
    .push_valid_o (push_valid),
    .push_ready_i (push_ready),
    .push_o       (push),
    .describe_o   (describe),
    .match_o      (match_entry),
    .match_i      (match),
    .halted_o     (halted),
    .fault_o      (sequencer_fault),
    .fault_queue_o(fault_queue),
    .words_run_o  (words_run)
  );

  lf_descriptors u_descriptors (
    .clk_i,
    .write_i          (describe),
    .read_i           (read),
    .read_descriptor_i(read_descriptor),
    .transfer_o       (transfer),
    .computation_o    (computation)
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
      .head_o           (head[queue]),
      .take_i           (take[queue]),
      .done_i           (done[queue]),
      .completed_i      (completed),
      .state_o          (state[queue]),
      .match_i          (match_entry),
      .match_o          (match[queue])
    );

    assign completed[queue] = state[queue].completed[15:0];
    assign empty[queue]     = state[queue].empty;
    assign idle[queue]      = state[queue].idle;
  end

  lf_dma #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_dma (
    .clk_i,
    .rst_ni          (unit_rst_n),
    .stop_i          (stop),
    .read_region_i   (settings.read_region),
    .write_region_i  (settings.write_region),
    .idle_o          (bus_idle),
    .head_i          (head[1:0]),
    .transfer_i      (transfer),
    .take_o          (take[1:0]),
    .done_o          (done[1:0]),
    .fault_o         (fault[2:1]),
    .fetch_valid_i   (fetch_valid),
    .fetch_i         (fetch),
    .fetch_ready_o   (fetch_ready),
    .fetch_beat_o    (fetch_beat),
    .wr_o            (buffer_wr[1]),
    .wr_data_o       (buffer_wr_data[1][0]),
    .wr_grant_i      (buffer_wr_response[1].grant),
    .rd_o            (buffer_rd[3]),
    .rd_grant_i      (buffer_rd_response[3].grant),
    .rd_data_i       (buffer_rd_data[3][0]),
    .aux_o           (aux),
    .aux_data_o      (aux_data),
    .events_o        (port_events),
    .rd_burst_o      (rd_burst),
    .rd_burst_ready_i,
    .rd_beat_i,
    .rd_beat_ready_o,
    .wr_burst_o      (wr_burst),
    .wr_burst_ready_i,
    .wr_beat_o,
    .wr_beat_ready_i,
    .wr_response_i
  );

  assign buffer_wr_data[1][Window-1:1] = '0;

  lf_prepare #(
    .Lanes(Lanes)
  ) u_prepare (
    .clk_i,
    .rst_ni       (unit_rst_n),
    .head_i       (head[2]),
    .computation_i(computation),
    .prepared_o   (prepared),
    .take_i       (take[2])
  );

  lf_exec #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_exec (
    .clk_i,
    .rst_ni       (unit_rst_n),
    .valid_i      (prepared.valid && !stop),
    .may_start_i  (exec_valid),
    .ready_o      (exec_ready),
    .descriptor_i (prepared.d),
    .row_i        (head[2].entry.row),
    .count_i      (head[2].entry.count),
    .done_o       (done[2]),
    .idle_o       (exec_idle),
    .error_o      (exec_failed),
    .error_code_o (exec_error),
    .rd_o         (buffer_rd[2:0]),
    .rd_first_o   (buffer_rd_first),
    .rd_response_i(buffer_rd_response[2:0]),
    .rd_data_i    (buffer_rd_data[2:0]),
    .wr_o         (buffer_wr[0]),
    .wr_data_o    (buffer_wr_data[0]),
    .wr_lanes_o   (buffer_wr_lanes),
    .wr_response_i(buffer_wr_response[0]),
    .aux_i        (aux),
    .aux_data_i   (aux_data),
    .events_o     (exec_events)
  );

  assign exec_valid = prepared.valid && head[2].may_start && !stop;
  assign take[2]    = exec_valid && exec_ready;

  lf_buffer #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_buffer (
    .clk_i,
    .rst_ni       (unit_rst_n),
    .rd_i         (buffer_rd),
    .rd_first_i   (buffer_rd_first),
    .rd_response_o(buffer_rd_response),
    .rd_data_o    (buffer_rd_data),
    .wr_i         (buffer_wr),
    .wr_data_i    (buffer_wr_data),
    .wr_lanes_i   (buffer_wr_lanes),
    .wr_response_o(buffer_wr_response)
  );

  // The sequencer also answers for the fetching of the program.
  always_comb begin
    fault[0] = sequencer_fault;
    if (fetch_beat.err || program_outside)
      fault[0] = '{valid: 1'b1, code: fetch_beat.err ? ErrBus : ErrRegion, index: words_run};
    // What is wrong with a command shows once those before it are done.
    fault[3] = '{valid: exec_failed, code: exec_error, index: state[2].completed};
    if (prepared.bad && head[2].may_start && idle[2] && !exec_failed) begin
      fault[3] = '{valid: 1'b1, code: prepared.error, index: state[2].completed};
    end
  end

  always_comb begin
    rd_burst_o = rd_burst;
    wr_burst_o = wr_burst;
    rd_burst_o.addr[31:PageBits] = rd_burst.addr[31:PageBits] + settings.dram_offset;
    wr_burst_o.addr[31:PageBits] = wr_burst.addr[31:PageBits] + settings.dram_offset;
  end

  always_comb begin
    for (int unsigned k = 0; k < 4; k++) buffer_granted[k] = buffer_rd_response[k].grant;
    for (int unsigned k = 0; k < 2; k++) buffer_granted[4 + k] = buffer_wr_response[k].grant;
  end
  assign progress = (push_valid & push_ready) != '0 || take != '0 || done != '0 ||
                    port_events.moved || aux.valid || exec_events.moved || buffer_granted != '0;

  always_comb begin
    count                 = '0;
    count[5'(CountCycles)]    = 1'b1;
    count[5'(CountLoadBusy)]  = !idle[0];
    count[5'(CountStoreBusy)] = !idle[1];
    count[5'(CountExecBusy)]  = exec_events.busy;
    count[5'(CountLoadWait)]  = head[0].valid && !head[0].may_start;
    count[5'(CountStoreWait)] = head[1].valid && !head[1].may_start;
    count[5'(CountExecWait)]  = head[2].valid && !head[2].may_start;
    count[5'(CountArrayActive)] = exec_events.array_active;
    count[5'(CountWeightStall)] = exec_events.weight_stall;
    count[5'(CountBufferStall)] = exec_events.buffer_stall;
    count[5'(CountDrainStall)]  = exec_events.drain_stall;
    count[5'(CountLoads)]  = done[0];
    count[5'(CountStores)] = done[1];
    count[5'(CountExecs)]  = done[2];
    count[5'(CountWords)]  = program_step.take;
    // By class, in the order of class_e.
    count[5'(CountReadInput)+:Classes]    = Classes'(port_events.read) << port_events.read_class;
    count[5'(CountWrittenInput)+:Classes] = Classes'(port_events.written) << port_events.written_class;
  end

  assign unused = ^{buffer_rd_data[3][Window-1:1], buffer_wr_response[1].fault, buffer_rd_response[3].fault};
endmodule
