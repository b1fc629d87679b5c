// lf_exec with its buffer, and the two ports of the buffer that belong to the DMA engine, for exec_bench.cpp.
module lf_exec_bench
  import lf_isa_pkg::*;
  import lf_port_pkg::*;
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
  buffer_request_t [3:0]               rd;
  buffer_response_t [3:0]              rd_response;
  logic                                rd_first;
  logic [3:0][Window-1:0][Lanes*8-1:0] rd_data;
  buffer_request_t [1:0]               wr;
  buffer_response_t [1:0]              wr_response;
  logic [1:0][Window-1:0][Lanes*8-1:0] wr_data;
  logic [Lanes-1:0]                    wr_lanes;
  error_e                              error_code;
  // Of lf_exec, but for what is held off.
  buffer_request_t [2:0]               exec_rd;
  buffer_response_t [2:0]              exec_rd_response;
  buffer_request_t                     exec_wr;
  buffer_response_t                    exec_wr_response;
  exec_events_t                        events;

  lf_exec #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_exec (
    .clk_i,
    .rst_ni,
    .valid_i,
    .may_start_i  (1'b1),
    .ready_o,
    .descriptor_i,
    .row_i,
    .count_i,
    .done_o,
    .idle_o,
    .error_o,
    .error_code_o (error_code),
    .rd_o         (exec_rd),
    .rd_first_o   (rd_first),
    .rd_response_i(exec_rd_response),
    .rd_data_i    (rd_data[2:0]),
    .wr_o         (exec_wr),
    .wr_data_o    (wr_data[0]),
    .wr_lanes_o   (wr_lanes),
    .wr_response_i(exec_wr_response),
    .aux_i        ('{valid: aux_valid_i, space: space_e'(aux_space_i), word: aux_word_i}),
    .aux_data_i,
    .events_o     (events)
  );

  assign error_code_o = 8'(error_code);
  assign events_o = {events.drain_stall, events.buffer_stall, events.weight_stall, events.array_active,
                     events.busy};
  for (genvar k = 0; k < 3; k++) begin : gen_read
    assign rd[k] = '{valid: exec_rd[k].valid && !hold_i[k], word: exec_rd[k].word, mask: exec_rd[k].mask};
    assign exec_rd_response[k] = '{grant: rd_response[k].grant && !hold_i[k], fault: rd_response[k].fault};
  end
  assign wr[0] = '{valid: exec_wr.valid && !hold_i[3], word: exec_wr.word, mask: exec_wr.mask};
  assign exec_wr_response = '{grant: wr_response[0].grant && !hold_i[3], fault: wr_response[0].fault};
  assign rd[3] = '{valid: rd_valid_i, word: rd_word_i, mask: Window'(1)};
  assign rd_grant_o = rd_response[3].grant;
  assign rd_data_o = rd_data[3][0];
  assign wr[1] = '{valid: wr_valid_i, word: wr_word_i, mask: Window'(1)};
  assign wr_data[1] = (4*Lanes*8)'(wr_data_i);
  assign wr_grant_o = wr_response[1].grant;

  lf_buffer #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_buffer (
    .clk_i,
    .rst_ni,
    .rd_i         (rd),
    .rd_first_i   (rd_first),
    .rd_response_o(rd_response),
    .rd_data_o    (rd_data),
    .wr_i         (wr),
    .wr_data_i    (wr_data),
    .wr_lanes_i   (wr_lanes),
    .wr_response_o(wr_response)
  );

  logic unused;
  assign unused = ^{rd_data[3], rd_response[3].fault, wr_response[1].fault, events.moved};
endmodule
