// The accelerator and its DRAM, for simulation.
module lf_sim #(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferBytes = 262144,
  parameter int unsigned DramBeats = 1 << 22
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        reg_valid_i,
  input  logic        reg_write_i,
  input  logic [11:0] reg_addr_i,
  input  logic [31:0] reg_wdata_i,
  output logic [31:0] reg_rdata_o,
  output logic        done_o
);
  logic         rd_req_valid;
  logic         rd_req_ready;
  logic [31:0]  rd_req_addr;
  logic [7:0]   rd_req_beats;
  logic         rd_valid;
  logic         rd_ready;
  logic [127:0] rd_data;
  logic         rd_err;
  logic         wr_req_valid;
  logic         wr_req_ready;
  logic [31:0]  wr_req_addr;
  logic [7:0]   wr_req_beats;
  logic         wr_valid;
  logic         wr_ready;
  logic [127:0] wr_data;
  logic [15:0]  wr_strb;
  logic         wr_last;
  logic         wr_resp_valid;
  logic         wr_resp_err;

  lf_core #(
    .Lanes      (Lanes),
    .BufferBytes(BufferBytes)
  ) u_core (
    .clk_i,
    .rst_ni,
    .reg_valid_i,
    .reg_write_i,
    .reg_addr_i,
    .reg_wdata_i,
    .reg_rdata_o,
    .done_o,
    .rd_req_valid_o (rd_req_valid),
    .rd_req_ready_i (rd_req_ready),
    .rd_req_addr_o  (rd_req_addr),
    .rd_req_beats_o (rd_req_beats),
    .rd_valid_i     (rd_valid),
    .rd_ready_o     (rd_ready),
    .rd_data_i      (rd_data),
    .rd_err_i       (rd_err),
    .wr_req_valid_o (wr_req_valid),
    .wr_req_ready_i (wr_req_ready),
    .wr_req_addr_o  (wr_req_addr),
    .wr_req_beats_o (wr_req_beats),
    .wr_valid_o     (wr_valid),
    .wr_ready_i     (wr_ready),
    .wr_data_o      (wr_data),
    .wr_strb_o      (wr_strb),
    .wr_last_o      (wr_last),
    .wr_resp_valid_i(wr_resp_valid),
    .wr_resp_err_i  (wr_resp_err)
  );

  lf_dram #(
    .Beats(DramBeats)
  ) u_dram (
    .clk_i,
    .rst_ni,
    .rd_req_valid_i (rd_req_valid),
    .rd_req_ready_o (rd_req_ready),
    .rd_req_addr_i  (rd_req_addr),
    .rd_req_beats_i (rd_req_beats),
    .rd_valid_o     (rd_valid),
    .rd_ready_i     (rd_ready),
    .rd_data_o      (rd_data),
    .rd_err_o       (rd_err),
    .wr_req_valid_i (wr_req_valid),
    .wr_req_ready_o (wr_req_ready),
    .wr_req_addr_i  (wr_req_addr),
    .wr_req_beats_i (wr_req_beats),
    .wr_valid_i     (wr_valid),
    .wr_ready_o     (wr_ready),
    .wr_data_i      (wr_data),
    .wr_strb_i      (wr_strb),
    .wr_last_i      (wr_last),
    .wr_resp_valid_o(wr_resp_valid),
    .wr_resp_err_o  (wr_resp_err)
  );
endmodule
