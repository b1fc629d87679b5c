// lf_exec with its buffer, and the two ports of the buffer that belong to the DMA engine, for exec_bench.cpp.
module lf_exec_bench
  import lf_isa_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 4096
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               valid_i,
  output logic               ready_o,
  input  computation_t       descriptor_i,
  input  logic [15:0]        row_i,
  input  logic [11:0]        count_i,
  output logic               done_o,
  output logic               idle_o,
  output logic               error_o,
  output logic [7:0]         error_code_o,
  input  logic               aux_valid_i,
  input  logic [1:0]         aux_space_i,
  input  logic [19:0]        aux_word_i,
  input  logic [Lanes*8-1:0] aux_data_i,
  input  logic               rd_valid_i,
  input  logic [19:0]        rd_word_i,
  output logic               rd_grant_o,
  output logic [Lanes*8-1:0] rd_data_o,
  input  logic               wr_valid_i,
  input  logic [19:0]        wr_word_i,
  input  logic [Lanes*8-1:0] wr_data_i,
  output logic               wr_grant_o,
  input  logic [3:0]         hold_i,  // requests of lf_exec that are not granted: three reads, the write
  // busy, array active, waits for weights, for the buffer, for the drain
  output logic [4:0]         events_o
);
  logic [3:0]                          rd_valid, rd_grant, rd_fault;
  logic [3:0][19:0]                    rd_word;
  logic [3:0][Window-1:0]              rd_mask;
  logic                                rd_first;
  logic [3:0][Window-1:0][Lanes*8-1:0] rd_data;
  logic [1:0]                          wr_valid, wr_grant, wr_fault;
  logic [1:0][19:0]                    wr_word;
  logic [1:0][Window-1:0]              wr_mask;
  logic [1:0][Window-1:0][Lanes*8-1:0] wr_data;
  logic [Lanes-1:0]                    wr_lanes;
  error_e                              error_code;
  logic [2:0]                          exec_rd_valid;
  logic                                exec_wr_valid;

  logic unused_moved;
  lf_exec #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_exec (
    .clk_i,
    .rst_ni,
    .valid_i,
    .may_start_i   (1'b1),
    .ready_o,
    .descriptor_i,
    .row_i,
    .count_i,
    .done_o,
    .idle_o,
    .error_o,
    .error_code_o  (error_code),
    .rd_valid_o    (exec_rd_valid),
    .rd_word_o     (rd_word[2:0]),
    .rd_mask_o     (rd_mask[2:0]),
    .rd_first_o    (rd_first),
    .rd_grant_i    (rd_grant[2:0] & ~hold_i[2:0]),
    .rd_data_i     (rd_data[2:0]),
    .wr_valid_o    (exec_wr_valid),
    .wr_word_o     (wr_word[0]),
    .wr_mask_o     (wr_mask[0]),
    .wr_data_o     (wr_data[0]),
    .wr_lanes_o    (wr_lanes),
    .wr_grant_i    (wr_grant[0] && !hold_i[3]),
    .fault_i       (rd_fault[2:0] != '0 || wr_fault[0]),
    .aux_valid_i,
    .aux_space_i   (space_e'(aux_space_i)),
    .aux_word_i,
    .aux_data_i,
    .moved_o       (unused_moved),
    .busy_o        (events_o[0]),
    .array_active_o(events_o[1]),
    .weight_stall_o(events_o[2]),
    .buffer_stall_o(events_o[3]),
    .drain_stall_o (events_o[4])
  );

  assign error_code_o = 8'(error_code);
  assign rd_valid[2:0] = exec_rd_valid & ~hold_i[2:0];
  assign wr_valid[0] = exec_wr_valid && !hold_i[3];
  assign rd_valid[3] = rd_valid_i;
  assign rd_word[3] = rd_word_i;
  assign rd_mask[3] = Window'(1);
  assign rd_grant_o = rd_grant[3];
  assign rd_data_o = rd_data[3][0];
  assign wr_valid[1] = wr_valid_i;
  assign wr_word[1] = wr_word_i;
  assign wr_mask[1] = Window'(1);
  assign wr_data[1] = (4*Lanes*8)'(wr_data_i);
  assign wr_grant_o = wr_grant[1];

  lf_buffer #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_buffer (
    .clk_i,
    .rst_ni,
    .rd_valid_i(rd_valid),
    .rd_word_i (rd_word),
    .rd_mask_i (rd_mask),
    .rd_first_i(rd_first),
    .rd_grant_o(rd_grant),
    .rd_fault_o(rd_fault),
    .rd_data_o (rd_data),
    .wr_valid_i(wr_valid),
    .wr_word_i (wr_word),
    .wr_mask_i (wr_mask),
    .wr_data_i (wr_data),
    .wr_lanes_i(wr_lanes),
    .wr_grant_o(wr_grant),
    .wr_fault_o(wr_fault)
  );

  logic unused;
  assign unused = ^{rd_data[3], rd_fault[3], wr_fault[1], unused_moved};
endmodule
