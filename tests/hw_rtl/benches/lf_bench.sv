// Units of the accelerator side by side, each with a clock of its own: only the one that is clocked takes
// part. One model serves all benches.
//
// Grants are valid and `allow`, so that a bench says when it would grant before it knows what is asked.
module lf_bench
  import lf_isa_pkg::*;
  import lf_setup_pkg::*;
  import lf_dma_pkg::*;
  import lf_port_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferBytes = 65536
) (
  // lf_axi, with the names that cocotbext-axi looks for.
  input  logic         axi_clk,
  input  logic         axi_rst,
  output logic         axi_irq,
  output logic [0:0]   m_axi_arid,
  output logic         m_axi_arvalid,
  input  logic         m_axi_arready,
  output logic [31:0]  m_axi_araddr,
  output logic [7:0]   m_axi_arlen,
  output logic [2:0]   m_axi_arsize,
  output logic [1:0]   m_axi_arburst,
  output logic [2:0]   m_axi_arprot,
  output logic [3:0]   m_axi_arcache,
  input  logic [0:0]   m_axi_rid,
  input  logic         m_axi_rvalid,
  output logic         m_axi_rready,
  input  logic [127:0] m_axi_rdata,
  input  logic [1:0]   m_axi_rresp,
  input  logic         m_axi_rlast,
  output logic [0:0]   m_axi_awid,
  output logic         m_axi_awvalid,
  input  logic         m_axi_awready,
  output logic [31:0]  m_axi_awaddr,
  output logic [7:0]   m_axi_awlen,
  output logic [2:0]   m_axi_awsize,
  output logic [1:0]   m_axi_awburst,
  output logic [2:0]   m_axi_awprot,
  output logic [3:0]   m_axi_awcache,
  output logic         m_axi_wvalid,
  input  logic         m_axi_wready,
  output logic [127:0] m_axi_wdata,
  output logic [15:0]  m_axi_wstrb,
  output logic         m_axi_wlast,
  input  logic [0:0]   m_axi_bid,
  input  logic         m_axi_bvalid,
  output logic         m_axi_bready,
  input  logic [1:0]   m_axi_bresp,
  input  logic         s_axil_awvalid,
  output logic         s_axil_awready,
  input  logic [11:0]  s_axil_awaddr,
  input  logic [2:0]   s_axil_awprot,
  input  logic         s_axil_wvalid,
  output logic         s_axil_wready,
  input  logic [31:0]  s_axil_wdata,
  input  logic [3:0]   s_axil_wstrb,
  output logic         s_axil_bvalid,
  input  logic         s_axil_bready,
  output logic [1:0]   s_axil_bresp,
  input  logic         s_axil_arvalid,
  output logic         s_axil_arready,
  input  logic [11:0]  s_axil_araddr,
  input  logic [2:0]   s_axil_arprot,
  output logic         s_axil_rvalid,
  input  logic         s_axil_rready,
  output logic [31:0]  s_axil_rdata,
  output logic [1:0]   s_axil_rresp,
  // lf_ring
  input  logic               ring_clk,
  input  logic               ring_rst_n,
  input  logic               ring_start,
  input  logic signed [22:0] ring_value,
  input  logic [4:0]         ring_row_step,
  input  logic [4:0]         ring_kernel_step,
  input  logic [11:0]        ring_slots,
  input  logic [19:0]        ring_slot_words,
  output logic               ring_done,
  output logic [31:0]        ring_offset,
  output logic [31:0]        ring_row_words,
  output logic [31:0]        ring_kernel_words,
  output logic [31:0]        ring_limit,
  // lf_modulo
  input  logic        modulo_clk,
  input  logic        modulo_rst_n,
  input  logic        modulo_valid,
  input  logic [15:0] modulo_value,
  input  logic [11:0] modulo_divisor,
  output logic        modulo_ready,
  output logic        modulo_found,
  output logic [11:0] modulo_remainder,
  // lf_array
  input  logic                           array_clk,
  input  logic                           array_rst_n,
  input  logic [PayloadBits-1:0]         array_descriptor,
  input  logic                           array_valid,
  input  logic [Window-1:0][Lanes*8-1:0] array_window,
  input  logic                           array_fetch,
  input  logic [2*Window-1:0]            array_present,
  input  logic [2:0]                     array_from,
  input  logic [2:0]                     array_shift,
  input  logic [2:0]                     array_taps,
  input  logic [2:0]                     array_together,
  input  logic [6:0]                     array_lanes,
  input  logic [5:0]                     array_lane,
  input  logic                           array_start,
  input  logic                           array_pass_start,
  input  logic                           array_first,
  input  logic                           array_second_used,
  input  logic [Window-1:0][Lanes*8-1:0] array_second,
  output logic [Window*Lanes*32-1:0]     array_sum,
  input  logic                           array_row_valid,
  input  logic                           array_row_depthwise,
  input  logic [2:0]                     array_row_together,
  input  logic [$clog2(Lanes)-1:0]       array_row,
  input  logic [2:0]                     array_row_count,
  input  logic [Window-1:0][Lanes*8-1:0] array_row_data,
  input  logic signed [8:0]              array_zero,
  input  logic                           array_unsigned,
  // lf_drain
  input  logic                           drain_clk,
  input  logic                           drain_rst_n,
  input  logic                           drain_request_valid,
  output logic                           drain_request_ready,
  input  logic [9:0]                     drain_request_block,
  input  logic                           drain_request_bank,
  input  logic                           drain_request_last,
  input  logic [PayloadBits-1:0]         drain_descriptor,
  input  logic [9:0]                     drain_columns,
  input  logic [31:0]                    drain_offset,  // of the first row, words
  input  logic [31:0]                    drain_row_step,
  input  logic [31:0]                    drain_limit,
  output logic                           drain_busy,
  output logic                           drain_done,
  input  logic                           drain_final_start,
  input  logic                           drain_final_bank,
  input  logic [2:0]                     drain_filled,
  input  logic                           drain_filled_bank,
  output logic [1:0]                     drain_bank_busy,
  output logic                           drain_sum_read,
  output logic                           drain_sum_bank,
  output logic [8:0]                     drain_sum_column,
  input  logic                           drain_sum_allow,
  input  logic [Lanes*32-1:0]            drain_sum_data,
  output logic                           drain_rd_grant,
  output logic [19:0]                    drain_rd_word,
  input  logic                           drain_rd_allow,
  input  logic [Lanes*8-1:0]             drain_rd_data,
  output logic                           drain_wr_grant,
  output logic [19:0]                    drain_wr_word,
  output logic [Window-1:0]              drain_wr_mask,
  output logic [Window-1:0][Lanes*8-1:0] drain_wr_data,
  output logic [Lanes-1:0]               drain_wr_lanes,
  input  logic                           drain_wr_allow,
  output logic [1:0]                     drain_fault,
  input  logic                           drain_aux_valid,
  input  logic [1:0]                     drain_aux_space,
  input  logic [19:0]                    drain_aux_word,
  input  logic [Lanes*8-1:0]             drain_aux_data,
  // lf_exec
  input  logic                                exec_clk,
  input  logic                                exec_rst_n,
  input  logic                                exec_valid,
  output logic                                exec_ready,
  input  logic [PayloadBits-1:0]              exec_descriptor,
  input  logic [15:0]                         exec_row,
  input  logic [11:0]                         exec_count,
  output logic                                exec_done,
  output logic                                exec_idle,
  output logic                                exec_error,
  output logic [2:0]                          exec_rd_grant,
  output logic [2:0][19:0]                    exec_rd_word,
  output logic [2:0][Window-1:0]              exec_rd_mask,
  input  logic [2:0]                          exec_rd_allow,
  input  logic [2:0][Window-1:0][Lanes*8-1:0] exec_rd_data,
  output logic                                exec_wr_grant,
  output logic [19:0]                         exec_wr_word,
  output logic [Window-1:0]                   exec_wr_mask,
  output logic [Window-1:0][Lanes*8-1:0]      exec_wr_data,
  output logic [Lanes-1:0]                    exec_wr_lanes,
  input  logic                                exec_wr_allow,
  // lf_dma
  input  logic                     dma_clk,
  input  logic                     dma_rst_n,
  input  logic [1:0]               dma_head_valid,
  input  logic [1:0]               dma_may_start,
  input  logic [PayloadBits-1:0]   dma_load,
  input  logic [PayloadBits-1:0]   dma_store,
  input  logic [1:0][15:0]         dma_row,  // 0 of the load, 1 of the store
  input  logic [1:0][11:0]         dma_count,
  input  logic [1:0][15:0]         dma_slot,
  input  logic [1:0][9:0]          dma_from_block,
  input  logic [1:0][9:0]          dma_to_block,
  output logic [1:0]               dma_take,
  output logic [1:0]               dma_done,
  output logic [1:0]               dma_fault,
  output logic                     dma_idle,
  output logic                     dma_wr_grant,
  output logic [19:0]              dma_wr_word,
  output logic [Lanes*8-1:0]       dma_wr_data,
  input  logic                     dma_wr_allow,
  output logic                     dma_rd_grant,
  output logic [19:0]              dma_rd_word,
  input  logic                     dma_rd_allow,
  input  logic [Lanes*8-1:0]       dma_rd_data,
  output logic                     dma_aux_valid,
  output logic [1:0]               dma_aux_space,
  output logic [19:0]              dma_aux_word,
  output logic [Lanes*8-1:0]       dma_aux_data,
  output logic                     dma_read_beat,
  output logic [2:0]               dma_read_class,
  output logic [4:0]               dma_written_bytes,
  output logic [2:0]               dma_written_class,
  output logic                     dma_ar_valid,
  input  logic                     dma_ar_ready,
  output logic [31:0]              dma_ar_addr,
  output logic [7:0]               dma_ar_beats,
  input  logic                     dma_r_valid,
  output logic                     dma_r_ready,
  input  logic [127:0]             dma_r_data,
  output logic                     dma_aw_valid,
  input  logic                     dma_aw_ready,
  output logic [31:0]              dma_aw_addr,
  output logic [7:0]               dma_aw_beats,
  output logic                     dma_w_valid,
  input  logic                     dma_w_ready,
  output logic [127:0]             dma_w_data,
  output logic [15:0]              dma_w_strb,
  output logic                     dma_w_last,
  input  logic                     dma_b_valid
);
  localparam int unsigned BufferWords = BufferBytes / Lanes;
  localparam region_t Everything = '{first: '0, limit: '1};

  // The whole, behind AXI.
  lf_axi #(
    .Lanes      (Lanes),
    .BufferBytes(BufferBytes)
  ) u_axi (
    .clk_i      (axi_clk),
    .rst_ni     (!axi_rst),
    .irq_o      (axi_irq),
    .m_arvalid_o(m_axi_arvalid),
    .m_arready_i(m_axi_arready),
    .m_araddr_o (m_axi_araddr),
    .m_arlen_o  (m_axi_arlen),
    .m_arsize_o (m_axi_arsize),
    .m_arburst_o(m_axi_arburst),
    .m_arprot_o (m_axi_arprot),
    .m_arcache_o(m_axi_arcache),
    .m_rvalid_i (m_axi_rvalid),
    .m_rready_o (m_axi_rready),
    .m_rdata_i  (m_axi_rdata),
    .m_rresp_i  (m_axi_rresp),
    .m_rlast_i  (m_axi_rlast),
    .m_awvalid_o(m_axi_awvalid),
    .m_awready_i(m_axi_awready),
    .m_awaddr_o (m_axi_awaddr),
    .m_awlen_o  (m_axi_awlen),
    .m_awsize_o (m_axi_awsize),
    .m_awburst_o(m_axi_awburst),
    .m_awprot_o (m_axi_awprot),
    .m_awcache_o(m_axi_awcache),
    .m_wvalid_o (m_axi_wvalid),
    .m_wready_i (m_axi_wready),
    .m_wdata_o  (m_axi_wdata),
    .m_wstrb_o  (m_axi_wstrb),
    .m_wlast_o  (m_axi_wlast),
    .m_bvalid_i (m_axi_bvalid),
    .m_bready_o (m_axi_bready),
    .m_bresp_i  (m_axi_bresp),
    .s_awvalid_i(s_axil_awvalid),
    .s_awready_o(s_axil_awready),
    .s_awaddr_i (s_axil_awaddr),
    .s_wvalid_i (s_axil_wvalid),
    .s_wready_o (s_axil_wready),
    .s_wdata_i  (s_axil_wdata),
    .s_wstrb_i  (s_axil_wstrb),
    .s_bvalid_o (s_axil_bvalid),
    .s_bready_i (s_axil_bready),
    .s_bresp_o  (s_axil_bresp),
    .s_arvalid_i(s_axil_arvalid),
    .s_arready_o(s_axil_arready),
    .s_araddr_i (s_axil_araddr),
    .s_rvalid_o (s_axil_rvalid),
    .s_rready_i (s_axil_rready),
    .s_rdata_o  (s_axil_rdata),
    .s_rresp_o  (s_axil_rresp)
  );
  assign m_axi_arid = '0;
  assign m_axi_awid = '0;

  lf_ring u_ring (
    .clk_i        (ring_clk),
    .rst_ni       (ring_rst_n),
    .start_i      (ring_start),
    .value_i      (ring_value),
    .row_step_i   (ring_row_step),
    .kernel_step_i(ring_kernel_step),
    .slots_i      (ring_slots),
    .slot_words_i (ring_slot_words),
    .done_o       (ring_done),
    .offset_o     (ring_offset),
    .row_step_o   (ring_row_words),
    .kernel_step_o(ring_kernel_words),
    .limit_o      (ring_limit)
  );

  lf_modulo u_modulo (
    .clk_i      (modulo_clk),
    .rst_ni     (modulo_rst_n),
    .valid_i    (modulo_valid),
    .value_i    (modulo_value),
    .divisor_i  (modulo_divisor),
    .ready_o    (modulo_ready),
    .valid_o    (modulo_found),
    .remainder_o(modulo_remainder)
  );

  logic signed [31:0] sum [Window][Lanes];
  lf_array #(
    .Lanes(Lanes)
  ) u_array (
    .clk_i          (array_clk),
    .rst_ni         (array_rst_n),
    .descriptor_i   (computation_t'(array_descriptor)),
    .together_i     (array_together),
    .start_i        (array_start),
    .valid_i        (array_valid),
    .fetch_i        (array_fetch),
    .window_i       (array_window),
    .present_i      (array_present),
    .from_i         (array_from),
    .shift_i        (array_shift),
    .taps_i         (array_taps),
    .lanes_i        (array_lanes),
    .lane_i         (array_lane),
    .pass_start_i   (array_pass_start),
    .first_i        (array_first),
    .second_used_i  (array_second_used),
    .second_i       (array_second),
    .sum_o          (sum),
    .row_valid_i    (array_row_valid),
    .row_depthwise_i(array_row_depthwise),
    .row_together_i (array_row_together),
    .row_i          (array_row),
    .row_count_i    (array_row_count),
    .row_data_i     (array_row_data),
    .zero_i         (array_zero),
    .unsigned_i     (array_unsigned)
  );
  always_comb
    for (int unsigned p = 0; p < Window; p++) for (int unsigned l = 0; l < Lanes; l++)
      array_sum[(p*Lanes + l)*32 +: 32] = sum[p][l];

  ring_t           drain_ring;
  logic            drain_rd_valid, drain_wr_valid;
  logic [1:0][2:0] unused_number;
  lf_drain #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_drain (
    .clk_i          (drain_clk),
    .rst_ni         (drain_rst_n),
    .request_valid_i(drain_request_valid),
    .request_ready_o(drain_request_ready),
    .request_i      ('{index: drain_request_block, bank: drain_request_bank, last: drain_request_last}),
    .number_i       ('0),
    .work_i         ('{columns: drain_columns, b: drain_ring, o: drain_ring,
                       d: computation_t'(drain_descriptor)}),
    .busy_o         (drain_busy),
    .done_o         (drain_done),
    .final_start_i  (drain_final_start),
    .final_bank_i   (drain_final_bank),
    .filled_i       (drain_filled),
    .filled_bank_i  (drain_filled_bank),
    .bank_busy_o    (drain_bank_busy),
    .sum_read_o     (drain_sum_read),
    .sum_bank_o     (drain_sum_bank),
    .sum_column_o   (drain_sum_column),
    .sum_grant_i    (drain_sum_allow),
    .sum_data_i     (drain_sum_data),
    .rd_valid_o     (drain_rd_valid),
    .rd_word_o      (drain_rd_word),
    .rd_grant_i     (drain_rd_grant),
    .rd_data_i      (drain_rd_data),
    .wr_valid_o     (drain_wr_valid),
    .wr_word_o      (drain_wr_word),
    .wr_mask_o      (drain_wr_mask),
    .wr_data_o      (drain_wr_data),
    .wr_lanes_o     (drain_wr_lanes),
    .wr_grant_i     (drain_wr_grant),
    .fault_o        (drain_fault),
    .fault_number_o (unused_number),
    .aux_i          ('{valid: drain_aux_valid, space: space_e'(drain_aux_space), word: drain_aux_word}),
    .aux_data_i     (drain_aux_data)
  );
  assign drain_ring = '{offset: drain_offset, row_step: drain_row_step, limit: drain_limit};
  assign drain_rd_grant = drain_rd_valid && drain_rd_allow;
  assign drain_wr_grant = drain_wr_valid && drain_wr_allow;

  buffer_request_t [2:0]  exec_rd;
  buffer_request_t        exec_wr;
  buffer_response_t [2:0] exec_rd_response;
  error_e                 unused_code;
  exec_events_t           unused_events;
  logic                   unused_first;
  lf_exec #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_exec (
    .clk_i        (exec_clk),
    .rst_ni       (exec_rst_n),
    .valid_i      (exec_valid),
    .may_start_i  (1'b1),
    .ready_o      (exec_ready),
    .descriptor_i (computation_t'(exec_descriptor)),
    .row_i        (exec_row),
    .count_i      (exec_count),
    .done_o       (exec_done),
    .idle_o       (exec_idle),
    .error_o      (exec_error),
    .error_code_o (unused_code),
    .rd_o         (exec_rd),
    .rd_first_o   (unused_first),
    .rd_response_i(exec_rd_response),
    .rd_data_i    (exec_rd_data),
    .wr_o         (exec_wr),
    .wr_data_o    (exec_wr_data),
    .wr_lanes_o   (exec_wr_lanes),
    .wr_response_i('{grant: exec_wr_grant, fault: 1'b0}),
    .aux_i        ('{valid: 1'b0, space: SpaceBuffer, word: '0}),
    .aux_data_i   ('0),
    .events_o     (unused_events)
  );
  for (genvar k = 0; k < 3; k++) begin : gen_exec_rd
    assign exec_rd_grant[k] = exec_rd[k].valid && exec_rd_allow[k];
    assign exec_rd_response[k] = '{grant: exec_rd_grant[k], fault: 1'b0};
    assign exec_rd_word[k] = exec_rd[k].word;
    assign exec_rd_mask[k] = exec_rd[k].mask;
  end
  assign exec_wr_grant = exec_wr.valid && exec_wr_allow;
  assign exec_wr_word = exec_wr.word;
  assign exec_wr_mask = exec_wr.mask;

  head_t [1:0]     dma_head;
  fault_t [1:0]    fault;
  buffer_request_t dma_wr, dma_rd;
  aux_write_t      dma_aux;
  port_events_t    dma_events;
  burst_t          dma_ar, dma_aw;
  write_beat_t     dma_w;
  logic            unused_fetch;
  read_beat_t      unused_beat;
  always_comb begin
    dma_head = '0;
    for (int unsigned k = 0; k < 2; k++) begin
      dma_head[k].entry.row = dma_row[k];
      dma_head[k].entry.count = dma_count[k];
      dma_head[k].entry.slot = dma_slot[k];
      dma_head[k].entry.from_block = dma_from_block[k];
      dma_head[k].entry.to_block = dma_to_block[k];
      dma_head[k].valid = dma_head_valid[k];
      dma_head[k].may_start = dma_may_start[k];
      dma_fault[k] = fault[k].valid;
    end
  end
  assign dma_wr_word = dma_wr.word;
  assign dma_rd_word = dma_rd.word;
  assign dma_aux_valid = dma_aux.valid;
  assign dma_aux_space = dma_aux.space;
  assign dma_aux_word = dma_aux.word;
  assign dma_read_beat = dma_events.read;
  assign dma_read_class = dma_events.read_class;
  assign dma_written_bytes = dma_events.written ? 5'd16 : 5'd0;
  assign dma_written_class = dma_events.written_class;
  assign dma_ar_valid = dma_ar.valid;
  assign dma_ar_addr = dma_ar.addr;
  assign dma_ar_beats = dma_ar.beats;
  assign dma_aw_valid = dma_aw.valid;
  assign dma_aw_addr = dma_aw.addr;
  assign dma_aw_beats = dma_aw.beats;
  assign dma_w_valid = dma_w.valid;
  assign dma_w_data = dma_w.data;
  assign dma_w_strb = dma_w.strb;
  assign dma_w_last = dma_w.last;
  lf_dma #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_dma (
    .clk_i           (dma_clk),
    .rst_ni          (dma_rst_n),
    .stop_i          (1'b0),
    .read_region_i   (Everything),
    .write_region_i  (Everything),
    .idle_o          (dma_idle),
    .head_i          (dma_head),
    .transfer_i      ({transfer_t'(dma_store), transfer_t'(dma_load)}),
    .take_o          (dma_take),
    .done_o          (dma_done),
    .fault_o         (fault),
    .fetch_valid_i   (1'b0),
    .fetch_i         ('0),
    .fetch_ready_o   (unused_fetch),
    .fetch_beat_o    (unused_beat),
    .wr_o            (dma_wr),
    .wr_data_o       (dma_wr_data),
    .wr_grant_i      (dma_wr_grant),
    .rd_o            (dma_rd),
    .rd_grant_i      (dma_rd_grant),
    .rd_data_i       (dma_rd_data),
    .aux_o           (dma_aux),
    .aux_data_o      (dma_aux_data),
    .events_o        (dma_events),
    .rd_burst_o      (dma_ar),
    .rd_burst_ready_i(dma_ar_ready),
    .rd_beat_i       ('{valid: dma_r_valid, data: dma_r_data, err: 1'b0}),
    .rd_beat_ready_o (dma_r_ready),
    .wr_burst_o      (dma_aw),
    .wr_burst_ready_i(dma_aw_ready),
    .wr_beat_o       (dma_w),
    .wr_beat_ready_i (dma_w_ready),
    .wr_response_i   ('{valid: dma_b_valid, err: 1'b0})
  );
  assign dma_wr_grant = dma_wr.valid && dma_wr_allow;
  assign dma_rd_grant = dma_rd.valid && dma_rd_allow;

  logic unused;
  assign unused = ^{unused_number, unused_code, unused_events, unused_fetch, unused_beat, dma_events.moved,
                    dma_wr.mask, dma_rd.mask, m_axi_rid, m_axi_bid, s_axil_awprot, s_axil_arprot, fault};
endmodule
